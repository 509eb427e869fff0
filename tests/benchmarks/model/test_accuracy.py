"""Accuracy and agreement of known answers, over several ranks."""

import math

import pytest
import torch

from spbench_workers.benchmarks.model.inference.accuracy import (
    InferredAnswers,
    report_accuracy,
    report_agreement,
)
from support.recording_context import find_events, get_metric, make_context

PARAMS = {"scheme": "sequential", "version": 1, "depth": 8, "enable_evaluation": True}
RIGHT = torch.tensor([0, 1, 2, 3])


def make_answers(*logits):
    return InferredAnswers((0,), torch.tensor(logits, dtype=torch.float64), RIGHT[: len(logits)])


def rank_classes(*classes):
    """Return logits of seven classes that rank them in this order."""
    return [float(-classes.index(class_)) if class_ in classes else -9.0 for class_ in range(7)]


SOME = make_answers(
    rank_classes(0, 1, 2, 3, 4),
    rank_classes(0, 1, 2, 3, 4),
    rank_classes(3, 4, 5, 6, 2),
    rank_classes(0, 1, 2, 4, 5),
)


@pytest.fixture
def context():
    return make_context("model.resnet", **PARAMS)


def test_reports_shares_of_images_and_the_mean_loss(context):
    report_accuracy(context, SOME)
    assert get_metric(context, "judged_images") == 4
    assert get_metric(context, "top1") == 0.25
    assert get_metric(context, "top5") == 0.75
    assert find_events(context, "metric", name="mean_iou") == []
    probabilities = SOME.logits.softmax(1)[range(4), RIGHT]
    assert get_metric(context, "eval_loss") == pytest.approx(-float(probabilities.log().mean()))


def test_reports_shares_of_pixels_and_a_mean_iou(context):
    # Predicted classes are 0, 0, 3, 0 and correct classes are 0, 1, 2, 3.
    report_accuracy(context, InferredAnswers((0,), SOME.logits, RIGHT, pixels=4))
    assert get_metric(context, "judged_images") == 1
    assert get_metric(context, "top1") == 0.25
    assert get_metric(context, "mean_iou") == pytest.approx((1 / 3) / 4)


def test_reports_no_top5_with_five_classes(context):
    report_accuracy(context, InferredAnswers((0,), SOME.logits[:, :5], RIGHT))
    assert find_events(context, "metric", name="top5") == []


def test_an_image_with_nan_counts_as_wrong(context):
    broken = SOME.logits.clone()
    broken[0, 6] = math.nan
    report_accuracy(context, InferredAnswers((0,), broken, RIGHT))
    assert get_metric(context, "top1") == 0
    assert get_metric(context, "eval_loss") is None
    report_agreement(context, InferredAnswers((0,), broken, RIGHT), SOME)
    assert get_metric(context, "logit_error") is None


def test_reports_agreement_of_classes_and_error_of_logits(context):
    other = SOME.logits.clone()
    other[0, 0] -= 0.9  # the class stays the same
    other[1, :2] = other[1, :2].flip(0)
    report_agreement(context, InferredAnswers((0,), other, RIGHT), SOME)
    assert get_metric(context, "agreement") == 0.75
    assert get_metric(context, "logit_error") == pytest.approx(1.0 / 9)
