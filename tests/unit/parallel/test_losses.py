"""Losses of images and pixels, compared with torch and explicit sums."""

import pytest
import torch
from torch.nn import functional

from spbench_parallel.full_size.learning import ExactLoss
from spbench_parallel.losses import Loss
from spbench_parallel.validation.reference import compute_whole_loss

torch.manual_seed(4)
LOGITS = torch.randn(3, 5, 6, 7, dtype=torch.float64)
MASKS = torch.randint(0, 4, (3, 6, 7))  # the last class does not occur


def test_cross_entropy_is_the_mean_over_pixels_summed_over_images():
    expected = functional.cross_entropy(LOGITS, MASKS) * 3
    assert float(Loss("cross_entropy", 42).compute(LOGITS, MASKS)) == pytest.approx(float(expected))
    assert float(compute_whole_loss("cross_entropy", LOGITS, MASKS)) == pytest.approx(
        float(expected)
    )
    classes = MASKS[:, 0, 0]
    rows = LOGITS[:, :, 0, 0]
    expected = functional.cross_entropy(rows, classes, reduction="sum")
    assert float(Loss().compute(rows, classes)) == pytest.approx(float(expected))


def test_dice_is_0_for_correct_answers_and_for_an_absent_class():
    loss = Loss("dice", 42)
    certain = 1e3 * functional.one_hot(MASKS, 5).movedim(3, 1).double()
    assert float(loss.compute(certain, MASKS)) == pytest.approx(0)
    targets = functional.one_hot(MASKS, 5)
    answers = functional.one_hot((MASKS + 1) % 4, 5)
    totals = (targets + answers).sum((1, 2))
    expected = (1 - 1 / (totals + 1)).mean(1).sum()
    wrong = 1e3 * answers.movedim(3, 1).double()
    assert float(loss.compute(wrong, MASKS)) == pytest.approx(float(expected))


def test_references_agree_in_dice_loss_and_gradient():
    results = []
    for compute in (
        Loss("dice", 42).compute,
        ExactLoss("dice", 42, None).compute,
        lambda logits, masks: compute_whole_loss("dice", logits, masks),
    ):
        logits = LOGITS.clone().requires_grad_()
        value = compute(logits, MASKS)
        value.backward()
        results.append((value.detach(), logits.grad))
    for value, gradient in results[1:]:
        torch.testing.assert_close(value, results[0][0], rtol=1e-12, atol=0)
        torch.testing.assert_close(gradient, results[0][1], rtol=1e-9, atol=1e-15)


def test_correct_pixels_count_as_shares_of_images():
    masks = LOGITS.argmax(1)
    assert float(Loss("cross_entropy", 42).count_correct(LOGITS, masks)) == pytest.approx(3)
    masks[0] = 4 - masks[0]
    expected = float((masks == LOGITS.argmax(1)).sum()) / 42
    assert float(Loss("dice", 42).count_correct(LOGITS, masks)) == pytest.approx(expected)
