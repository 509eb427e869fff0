"""Checks of what a rank has by itself: its operators, its loss and its update."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from spbench_parallel.full_size.bound import OperatorErrors, Rounding, new_worst_ratio
from spbench_parallel.full_size.learning import ExactLoss, LossCheck, UpdateCheck
from spbench_parallel.full_size.plain import PlainCheck
from spbench_parallel.full_size.windows import OperatorCall
from spbench_parallel.losses import Loss
from spbench_parallel.plan import TrainingConfig
from spbench_parallel.precision.formats import BF16, FP16, FP32, FP64
from spbench_parallel.training.updates import Updates

FORMATS = [FP64, FP32, FP16, BF16]
OPERATORS = {
    "conv": lambda: nn.Conv2d(16, 8, 3, 1, 1),
    "conv, groups": lambda: nn.Conv2d(16, 8, (1, 7), 2, (0, 3), groups=4),
    "max": lambda: nn.MaxPool2d(3, 2, 1),
    "mean": lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    "whole mean": lambda: nn.AdaptiveAvgPool2d(1),
    "relu": nn.ReLU,
    "linear": lambda: nn.Linear(16, 8),
}


def call_of(name, precision, seed=0):
    """An operator and a call of it as its format has it: exact, and rounded once."""
    torch.manual_seed(seed)
    module = OPERATORS[name]()
    linear = isinstance(module, nn.Linear)
    # Fully connected layers are computed in the weights' format.
    kept = (torch.float64 if precision is FP64 else torch.float32) if linear else precision.work
    module.to(torch.float64 if precision is FP64 else torch.float32)
    shape = (6, 16) if linear else (2, 16, 9, 9)
    pixels = torch.randn(shape, dtype=torch.float64).to(kept)
    exact = copy.deepcopy(module).double()
    wide = pixels.double().requires_grad_()
    for parameter in exact.parameters():
        parameter.data = parameter.data.to(kept).double()
    found = exact(wide)
    gradient = torch.randn(found.shape, dtype=torch.float64).to(kept)
    found.backward(gradient.double())
    of_parameters = {key: one.grad.to(kept) for key, one in exact.named_parameters()}
    call = OperatorCall(
        pixels, found.detach().to(kept), gradient, wide.grad.to(kept), of_parameters
    )
    return module, call


def errors_of(module, call, precision):
    errors = OperatorErrors()
    rounding = Rounding.from_precision(precision)
    PlainCheck("it", module, precision.work, rounding, errors).check(call)
    return errors


@pytest.mark.parametrize("precision", FORMATS, ids=lambda one: one.name)
@pytest.mark.parametrize("name", OPERATORS)
def test_what_is_rounded_once_passes(name, precision):
    for seed in range(3):
        module, call = call_of(name, precision, seed)
        errors = errors_of(module, call, precision)
        assert errors.single.error <= 1.0, errors.single.detail
        assert errors.scales.error <= 1.0, errors.scales.detail


def off(values):
    """The values of one pixel, or of all, are off by as much as they are large."""
    one = values[0, :, 0, 0] if values.dim() == 4 else values[0]
    one += values.square().mean().sqrt()


def not_a_number(values):
    values.view(-1)[0] = math.nan


@pytest.mark.parametrize("precision", FORMATS, ids=lambda one: one.name)
@pytest.mark.parametrize("spoil", [off, not_a_number])
@pytest.mark.parametrize(("part", "word"), [("output", "output"), ("input_gradient", "input grad")])
@pytest.mark.parametrize("name", OPERATORS)
def test_one_wrong_pixel_is_found(name, part, word, spoil, precision):
    module, call = call_of(name, precision)
    spoil(getattr(call, part))
    single = errors_of(module, call, precision).single
    assert single.error > 1.0
    assert single.detail.startswith(f"it: {word}")


@pytest.mark.parametrize(("factor", "passes"), [(0.95, True), (1.05, False)])
@pytest.mark.parametrize("precision", FORMATS, ids=lambda one: one.name)
def test_an_error_just_above_the_bound_of_a_pixel_is_found(precision, factor, passes):
    """The output is exact but for one pixel, whose channels are off by the bound together."""
    module, call = call_of("conv", precision)
    weight, bias = (one.detach().to(precision.work).double() for one in module.parameters())
    pixels = call.pixels.double()
    exact = functional.conv2d(pixels, weight, bias, padding=1)
    sizes = functional.conv2d(pixels.abs(), weight.abs(), bias.abs(), padding=1)
    value = exact[1, :, 4, 5].norm()
    magnitude = sizes[1, :, 4, 5].norm()
    wide = Rounding.from_precision(precision).sums * 16 * magnitude
    bound = 2 * (
        precision.epsilon * value
        + wide
        + Rounding.from_precision(precision).smallest * math.sqrt(8)
    )
    exact[1, :, 4, 5] += factor * bound / math.sqrt(8)
    call.output = exact
    single = errors_of(module, call, precision).single
    assert (single.error <= 1.0) == passes, single


@pytest.mark.parametrize("precision", FORMATS, ids=lambda one: one.name)
@pytest.mark.parametrize("name", ["conv", "linear"])
def test_gradients_of_parameters_are_compared_and_have_to_be_there(name, precision):
    for spoil in (lambda values: values.zero_(), lambda values: values.mul_(1.2)):
        module, call = call_of(name, precision)
        spoil(call.parameter_gradients["weight"])
        single = errors_of(module, call, precision).single
        assert single.error > 1.0
        assert single.detail == "it: gradient of weight"
    module, call = call_of(name, precision)
    call.parameter_gradients.clear()
    assert errors_of(module, call, precision).single.error == math.inf


def test_an_output_of_another_shape_is_found():
    module, call = call_of("conv", FP32)
    call.output = call.output[:, :, 1:]
    assert errors_of(module, call, FP32).single.error == math.inf


# The loss


class LastStage:
    """A stage that makes logits and a loss of them, as the runner of the last stage does."""

    def __init__(self, name, factor):
        torch.manual_seed(1)
        self.module = nn.Conv2d(12, 5, 1)
        self.loss = 0.0
        self._pixels = torch.randn(8, 12, 4, 4)
        self._classes = torch.randint(5, (8, 4, 4))
        self._loss_of = Loss(name, 16)
        self._factor = factor

    def targets(self, micro_batch):
        return self._classes

    def forward(self, micro_batch):
        logits = self.module(self._pixels)
        loss = self._loss_of.compute(logits, self._classes) / 8
        self.loss = float(loss.detach()) * self._factor
        (loss * 4.0 * self._factor).backward()


def loss_errors(name, factor):
    errors = OperatorErrors()
    stage = LastStage(name, factor)
    check = LossCheck("it", stage, ExactLoss(name, 16, None), 8, 4.0, errors)
    stage.forward(0)
    check.finish()
    return errors


@pytest.mark.parametrize("name", ["cross_entropy", "dice"])
def test_a_loss_and_its_gradient_pass_and_wrong_ones_do_not(name):
    right = loss_errors(name, 1.0)
    assert right.single.error <= 1.0, right.single.detail
    assert right.scales.error <= 1.0
    wrong = loss_errors(name, 1.0001)
    assert wrong.single.error > 1.0
    assert wrong.scales.error > 1.0


# The update


def engine_with(stage):
    return SimpleNamespace(
        stages=[stage],
        coordinates=[SimpleNamespace(stage=0, direction=0)],
        plan=SimpleNamespace(master_comm=False, owner=0),
        arithmetic=SimpleNamespace(skipped_steps=0),
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.001, False), (0.0, False)])
def test_an_update_is_that_of_the_rule(optimizer, factor, passes):
    torch.manual_seed(1)
    training = TrainingConfig(optimizer, 0.01, 1e-4)
    stage = nn.Linear(30, 20)
    check = UpdateCheck(engine_with(stage), training)
    before = [one.detach().clone() for one in stage.parameters()]
    for one in stage.parameters():
        one.grad = torch.randn_like(one)
    Updates(training, list(stage.parameters())).step()
    with torch.no_grad():
        for one, old in zip(stage.parameters(), before, strict=True):
            one.copy_(old + (one - old) * factor)
    worst = new_worst_ratio()
    check.compare(worst)
    assert (worst.error <= 1.0) == passes, worst.detail


@pytest.mark.parametrize("size", [1e-10, 1e-9, 3e-9, 1e-8, 1e-7])
def test_changes_that_weights_swallow_are_no_error(size):
    """A weight of 0.02 lies on a grid of steps of 2e-9: less than half of it changes nothing."""
    torch.manual_seed(1)
    stage = nn.Linear(1000, 400, bias=False)
    nn.init.normal_(stage.weight, std=0.02)
    worst = swallowed(stage, size, factor=1.0)
    assert worst.error <= 1.0, worst.detail


def test_a_wrong_scale_of_small_changes_is_found():
    torch.manual_seed(1)
    assert swallowed(nn.Linear(1000, 400, bias=False), 1e-6, factor=1.01).error > 1.0


def swallowed(stage, size, factor):
    """The error of an update whose changes have a size, scaled by a factor."""
    training = TrainingConfig("sgd", 1.0, 0.0)
    engine = engine_with(stage)
    check = UpdateCheck(engine, training)
    stage.weight.grad = torch.randn_like(stage.weight) * size
    right = stage.weight.grad.clone()
    stage.weight.grad.mul_(factor)
    Updates(training, list(stage.parameters())).step()
    stage.weight.grad.copy_(right)
    worst = new_worst_ratio()
    check.compare(worst)
    return worst
