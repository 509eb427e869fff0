"""Checks of work on one rank: its operators, its loss and its update."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from spbench_parallel.full_size.bound import (
    Rounding,
)
from spbench_parallel.full_size.calls import OperatorCall, OperatorErrors, new_worst_ratio
from spbench_parallel.full_size.learning import ExactLoss, LossCheck, UpdateCheck
from spbench_parallel.full_size.plain import PlainCheck
from spbench_parallel.losses import Loss
from spbench_parallel.plan import TrainingConfig
from spbench_parallel.precision.formats import BF16, FP16, FP32, FP64
from spbench_parallel.training.updates import Optimizer

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


def make_call(name, precision, seed=0):
    """Return an operator and an exact call that is rounded once to its format."""
    torch.manual_seed(seed)
    module = OPERATORS[name]()
    linear = isinstance(module, nn.Linear)
    # Fully connected layers are computed in the format of the weights.
    weight_dtype = torch.float64 if precision is FP64 else torch.float32
    dtype = weight_dtype if linear else precision.work
    module.to(weight_dtype)
    shape = (6, 16) if linear else (2, 16, 9, 9)
    pixels = torch.randn(shape, dtype=torch.float64).to(dtype)
    exact = copy.deepcopy(module).double()
    wide = pixels.double().requires_grad_()
    for parameter in exact.parameters():
        parameter.data = parameter.data.to(dtype).double()
    output = exact(wide)
    gradient = torch.randn(output.shape, dtype=torch.float64).to(dtype)
    output.backward(gradient.double())
    parameter_gradients = {
        key: parameter.grad.to(dtype) for key, parameter in exact.named_parameters()
    }
    call = OperatorCall(
        pixels, output.detach().to(dtype), gradient, wide.grad.to(dtype), parameter_gradients
    )
    return module, call


def measure_errors(module, call, precision):
    errors = OperatorErrors()
    rounding = Rounding.from_precision(precision)
    PlainCheck("it", module, precision.work, rounding, errors).check(call)
    return errors


@pytest.mark.parametrize("precision", FORMATS, ids=lambda param: param.name)
@pytest.mark.parametrize("name", OPERATORS)
def test_values_that_are_rounded_once_pass(name, precision):
    for seed in range(3):
        module, call = make_call(name, precision, seed)
        errors = measure_errors(module, call, precision)
        assert errors.worst_element.error <= 1.0, errors.worst_element.detail
        assert errors.worst_scale.error <= 1.0, errors.worst_scale.detail


def corrupt_pixel(values):
    """Change the values of one pixel by the magnitude of all values."""
    pixel = values[0, :, 0, 0] if values.dim() == 4 else values[0]
    pixel += values.square().mean().sqrt()


def insert_nan(values):
    values.view(-1)[0] = math.nan


@pytest.mark.parametrize("precision", FORMATS, ids=lambda param: param.name)
@pytest.mark.parametrize("corrupt", [corrupt_pixel, insert_nan])
@pytest.mark.parametrize(
    ("part", "prefix"), [("output", "output"), ("input_gradient", "input grad")]
)
@pytest.mark.parametrize("name", OPERATORS)
def test_detects_a_wrong_pixel(name, part, prefix, corrupt, precision):
    module, call = make_call(name, precision)
    corrupt(getattr(call, part))
    single = measure_errors(module, call, precision).worst_element
    assert single.error > 1.0
    assert single.detail.startswith(f"it: {prefix}")


@pytest.mark.parametrize(("factor", "passes"), [(0.95, True), (1.05, False)])
@pytest.mark.parametrize("precision", FORMATS, ids=lambda param: param.name)
def test_detects_an_error_just_above_the_bound_of_a_pixel(precision, factor, passes):
    """One pixel is wrong: its channels together exceed the bound, or not."""
    module, call = make_call("conv", precision)
    weight, bias = (
        parameter.detach().to(precision.work).double() for parameter in module.parameters()
    )
    pixels = call.pixels.double()
    exact = functional.conv2d(pixels, weight, bias, padding=1)
    sizes = functional.conv2d(pixels.abs(), weight.abs(), bias.abs(), padding=1)
    value = exact[1, :, 4, 5].norm()
    magnitude = sizes[1, :, 4, 5].norm()
    wide = Rounding.from_precision(precision).sum_epsilon * 16 * magnitude
    bound = 2 * (
        precision.epsilon * value
        + wide
        + Rounding.from_precision(precision).smallest * math.sqrt(8)
    )
    exact[1, :, 4, 5] += factor * bound / math.sqrt(8)
    call.output = exact
    single = measure_errors(module, call, precision).worst_element
    assert (single.error <= 1.0) == passes, single


@pytest.mark.parametrize("precision", FORMATS, ids=lambda param: param.name)
@pytest.mark.parametrize("name", ["conv", "linear"])
def test_compares_and_requires_gradients_of_parameters(name, precision, messages):
    for corrupt in (lambda values: values.zero_(), lambda values: values.mul_(1.2)):
        module, call = make_call(name, precision)
        corrupt(call.parameter_gradients["weight"])
        single = measure_errors(module, call, precision).worst_element
        assert single.error > 1.0
        messages.check(single.detail)
    module, call = make_call(name, precision)
    call.parameter_gradients.clear()
    assert measure_errors(module, call, precision).worst_element.error == math.inf


def test_detects_an_output_of_another_shape():
    module, call = make_call("conv", FP32)
    call.output = call.output[:, :, 1:]
    assert measure_errors(module, call, FP32).worst_element.error == math.inf


# The loss


class LastStage:
    """A stage that computes logits and their loss like the last stage of a pipeline."""

    def __init__(self, name, factor):
        torch.manual_seed(1)
        self.module = nn.Conv2d(12, 5, 1)
        self.loss = 0.0
        self._pixels = torch.randn(8, 12, 4, 4)
        self._classes = torch.randint(5, (8, 4, 4))
        self._loss_function = Loss(name, 16)
        self._factor = factor

    def targets(self, micro_batch):
        return self._classes

    def forward(self, micro_batch):
        logits = self.module(self._pixels)
        loss = self._loss_function.compute(logits, self._classes) / 8
        self.loss = float(loss.detach()) * self._factor
        (loss * 4.0 * self._factor).backward()


def measure_loss_errors(name, factor):
    errors = OperatorErrors()
    stage = LastStage(name, factor)
    check = LossCheck("it", stage, ExactLoss(name, 16, None), 8, 4.0, errors)
    stage.forward(0)
    check.finish()
    return errors


@pytest.mark.parametrize("name", ["cross_entropy", "dice"])
def test_a_correct_loss_passes_and_a_wrong_one_fails(name):
    correct = measure_loss_errors(name, 1.0)
    assert correct.worst_element.error <= 1.0, correct.worst_element.detail
    assert correct.worst_scale.error <= 1.0
    wrong = measure_loss_errors(name, 1.0001)
    assert wrong.worst_element.error > 1.0
    assert wrong.worst_scale.error > 1.0


# The update


def make_engine(stage):
    return SimpleNamespace(
        stages=[stage],
        coordinates=[SimpleNamespace(stage=0, direction=0)],
        plan=SimpleNamespace(master_comm=False, owner=0),
        arithmetic=SimpleNamespace(skipped_steps=0),
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.001, False), (0.0, False)])
def test_an_update_follows_the_rule_of_the_optimizer(optimizer, factor, passes):
    torch.manual_seed(1)
    training = TrainingConfig(optimizer, 0.01, 1e-4)
    stage = nn.Linear(30, 20)
    check = UpdateCheck(make_engine(stage), training)
    before = [parameter.detach().clone() for parameter in stage.parameters()]
    for parameter in stage.parameters():
        parameter.grad = torch.randn_like(parameter)
    Optimizer(training, list(stage.parameters())).step()
    with torch.no_grad():
        for parameter, old in zip(stage.parameters(), before, strict=True):
            parameter.copy_(old + (parameter - old) * factor)
    worst = new_worst_ratio()
    check.compare(worst)
    assert (worst.error <= 1.0) == passes, worst.detail


@pytest.mark.parametrize("size", [1e-10, 1e-9, 3e-9, 1e-8, 1e-7])
def test_changes_below_the_resolution_of_weights_pass(size):
    """Weights near 0.02 have a resolution of 2e-9: half of it changes nothing."""
    torch.manual_seed(1)
    stage = nn.Linear(1000, 400, bias=False)
    nn.init.normal_(stage.weight, std=0.02)
    worst = measure_small_update(stage, size, factor=1.0)
    assert worst.error <= 1.0, worst.detail


def test_detects_a_wrong_scale_of_small_changes():
    torch.manual_seed(1)
    assert measure_small_update(nn.Linear(1000, 400, bias=False), 1e-6, factor=1.01).error > 1.0


def measure_small_update(stage, size, factor):
    """Return the error of an update with changes of a size, scaled by a factor."""
    training = TrainingConfig("sgd", 1.0, 0.0)
    engine = make_engine(stage)
    check = UpdateCheck(engine, training)
    stage.weight.grad = torch.randn_like(stage.weight) * size
    gradient = stage.weight.grad.clone()
    stage.weight.grad.mul_(factor)
    Optimizer(training, list(stage.parameters())).step()
    stage.weight.grad.copy_(gradient)
    worst = new_worst_ratio()
    check.compare(worst)
    return worst
