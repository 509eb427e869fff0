"""Small steps instead of the optimizer's if rounding determines its steps."""

import re

import pytest
import torch

from spbench_core.layout.micro_batches import split_batch
from spbench_core.layout.stages import build_layout
from spbench_core.models.registry import make_model
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import FP64
from spbench_workers.benchmarks.model.validation import MAX_CHANGE, Validation
from support.single_rank_context import SingleRankContext

pytestmark = pytest.mark.slow
AMOEBANET = make_model(
    "amoebanet", image_size=(64, 64), num_classes=5, num_layers=3, num_filters=16
)
RESNET = make_model("resnet", image_size=(32, 32), num_classes=5, version=1, depth=8)


def validate_model(network, optimizer, spoil=lambda *_: None, max_change=MAX_CHANGE):
    """Validate one process against itself with another order of additions."""
    context = SingleRankContext()
    batches = split_batch(1, 1, mirrored=False, times=1)
    layers = (len(network.layers),)
    cpu = torch.device("cpu")
    plan = ModelPlan(network, build_layout(1), layers, batches, device=cpu, precision=FP64)
    training = TrainingConfig(optimizer)
    Validation(context, plan, training, spoil, lambda *_: None, max_change=max_change).run()
    return context


def zero_a_weight(_, engine):
    with torch.no_grad():
        next(engine.stages[0].parameters())[0] = 0.0


def test_takes_small_steps_if_rounding_determines_them(messages):
    context = validate_model(AMOEBANET, "adam")
    value, reason = context.choices["compared_steps"]
    assert value == "sgd"
    messages.check(re.sub(r"by \S+ of", "by SHARE of", reason))  # it depends on the processor
    assert all(context.checks.values())
    assert not all(validate_model(AMOEBANET, "adam", zero_a_weight).checks.values())


def test_compares_an_optimizer_that_is_robust_to_rounding():
    context = validate_model(RESNET, "adam")
    assert (context.choices, all(context.checks.values())) == ({}, True)


def test_small_steps_detect_errors():
    context = validate_model(RESNET, "adam", max_change=0.0)
    assert (list(context.choices), all(context.checks.values())) == (["compared_steps"], True)
    wrong = validate_model(RESNET, "adam", zero_a_weight, max_change=0.0).checks
    assert not any(wrong[kind] for kind in ("grad", "weights", "output"))
