"""Losses of images and of pixels, beside those of torch and beside sums that are written out."""

import pytest
import torch
from torch.nn import functional

from spbench_parallel.full_size.learning import ExactLoss
from spbench_parallel.losses import Loss
from spbench_parallel.validation.reference import whole_loss

torch.manual_seed(4)
LOGITS = torch.randn(3, 5, 6, 7, dtype=torch.float64)
MASKS = torch.randint(0, 4, (3, 6, 7))  # the last class is nowhere


def test_cross_entropy_is_the_mean_over_pixels_summed_over_images():
    wanted = functional.cross_entropy(LOGITS, MASKS) * 3
    assert float(Loss("cross_entropy", 42).compute(LOGITS, MASKS)) == pytest.approx(float(wanted))
    assert float(whole_loss("cross_entropy", LOGITS, MASKS)) == pytest.approx(float(wanted))
    classes = MASKS[:, 0, 0]
    rows = LOGITS[:, :, 0, 0]
    wanted = functional.cross_entropy(rows, classes, reduction="sum")
    assert float(Loss().compute(rows, classes)) == pytest.approx(float(wanted))


def test_dice_is_0_of_certain_right_answers_and_nearly_1_of_wrong_ones():
    loss = Loss("dice", 42)
    sure = 1e3 * functional.one_hot(MASKS, 5).movedim(3, 1).double()
    assert float(loss.compute(sure, MASKS)) == pytest.approx(0)
    wrong = 1e3 * functional.one_hot((MASKS + 1) % 4, 5).movedim(3, 1).double()
    assert 2.2 < float(loss.compute(wrong, MASKS)) < 3


def test_the_references_have_the_same_dice_loss_and_gradient():
    found = []
    for of in (
        Loss("dice", 42).compute,
        ExactLoss("dice", 42, None).compute,
        lambda logits, masks: whole_loss("dice", logits, masks),
    ):
        logits = LOGITS.clone().requires_grad_()
        value = of(logits, MASKS)
        value.backward()
        found.append((value.detach(), logits.grad))
    for value, gradient in found[1:]:
        torch.testing.assert_close(value, found[0][0], rtol=1e-12, atol=0)
        torch.testing.assert_close(gradient, found[0][1], rtol=1e-9, atol=1e-15)


def test_right_pixels_count_as_shares_of_images():
    told = LOGITS.argmax(1)
    assert float(Loss("cross_entropy", 42).count_correct(LOGITS, told)) == pytest.approx(3)
    told[0] = 4 - told[0]
    right = float((told == LOGITS.argmax(1)).sum()) / 42
    assert float(Loss("dice", 42).count_correct(LOGITS, told)) == pytest.approx(right)
