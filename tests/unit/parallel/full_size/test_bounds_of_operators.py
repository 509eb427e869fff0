"""Checks of operators at full size: accepted and rejected errors, in every format."""

import math

import pytest
import torch
from mpi4py import MPI
from torch.nn import functional

from spbench_core.layout.tiles import Grid
from spbench_core.layout.window import Window
from spbench_parallel.full_size.bound import (
    Rounding,
    ScaleError,
    find_worst_pixel,
)
from spbench_parallel.full_size.calls import OperatorCall, OperatorErrors
from spbench_parallel.full_size.norms import NormCheck
from spbench_parallel.full_size.regions import WindowAxis
from spbench_parallel.full_size.windows import WindowCheck
from spbench_parallel.models.modules import SpatialShiftedConv2d
from spbench_parallel.precision.formats import BF16, FP16, FP32, FP64
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_parallel.spatial.tiling import Tiling

FORMATS = [FP64, FP32, FP16, BF16]
SIDE = 9
TILING = Tiling.of_grid(MPI.COMM_SELF, Grid(1, 1), SIDE, SIDE, transport="packed")
OPERATORS = {
    "conv": lambda: SpatialConv2d(16, 8, 3, 1, 1, tiling=TILING),
    "conv, stride 2, 1x7": lambda: SpatialConv2d(16, 8, (1, 7), 2, (0, 3), tiling=TILING),
    "shifted": lambda: SpatialShiftedConv2d(16, 8, tiling=TILING),
    "max": lambda: SpatialMaxPool2d(3, 2, 1, tiling=TILING),
    "mean": lambda: SpatialAvgPool2d(3, 1, 1, count_include_pad=False, tiling=TILING),
}


def round_to(values, precision):
    return values.to(precision.work)


def make_call(module, precision, seed=0):
    """Return a call with exact products that are rounded once, like in the format."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape) / 8)
    pixels = round_to(torch.randn(2, 16, SIDE, SIDE, dtype=torch.float64), precision)
    parameters = {
        name: round_to(parameter.detach(), precision).double().requires_grad_()
        for name, parameter in module.named_parameters()
    }
    wide = pixels.double().requires_grad_()
    output = compute_plain(module, wide, **parameters)
    gradient = round_to(torch.randn(output.shape, dtype=torch.float64), precision)
    output.backward(gradient.double())
    return OperatorCall(
        pixels,
        round_to(output.detach(), precision),
        gradient,
        round_to(wide.grad, precision),
        {name: round_to(parameter.grad, precision) for name, parameter in parameters.items()},
    )


def compute_plain(module, pixels, weight=None, bias=None):
    match module:
        case SpatialShiftedConv2d():
            return functional.conv2d(pixels[:, :, 1::2, 1::2], weight)
        case SpatialConv2d():
            return functional.conv2d(pixels, weight, bias, module.stride, module.padding)
        case SpatialMaxPool2d():
            return functional.max_pool2d(pixels, 3, 2, 1)
    return functional.avg_pool2d(pixels, 3, 1, 1, count_include_pad=False)


def measure_error(module, call, precision):
    errors = OperatorErrors()
    rounding = Rounding.from_precision(precision)
    WindowCheck("it", module, MPI.COMM_SELF, precision.work, rounding, errors).check(call)
    return errors.worst_element


@pytest.mark.parametrize("precision", FORMATS, ids=lambda param: param.name)
@pytest.mark.parametrize("name", OPERATORS)
def test_rounded_values_pass(name, precision):
    for seed in range(5):
        module = OPERATORS[name]()
        worst = measure_error(module, make_call(module, precision, seed), precision)
        assert 0.0 <= worst.error < 0.5, worst.detail


def corrupt_corner(values):
    """Change the channels of one pixel by the magnitude of the values."""
    values[0, :, 0, 0] += values.square().mean().sqrt()


def scale_all(values):
    values.mul_(1.05)


def insert_nan(values):
    values[0, 0, 0, 0] = math.nan


@pytest.mark.parametrize("precision", FORMATS, ids=lambda param: param.name)
@pytest.mark.parametrize("corrupt", [corrupt_corner, scale_all, insert_nan])
@pytest.mark.parametrize(
    ("part", "prefix"), [("output", "output"), ("input_gradient", "input grad")]
)
@pytest.mark.parametrize("name", OPERATORS)
def test_detects_a_wrong_pixel_and_a_wrong_scale(name, part, prefix, corrupt, precision):
    module = OPERATORS[name]()
    call = make_call(module, precision)
    corrupt(getattr(call, part))
    worst = measure_error(module, call, precision)
    assert worst.error > 1.0
    assert worst.detail.startswith(f"it: {prefix}")


@pytest.mark.parametrize("precision", FORMATS, ids=lambda param: param.name)
def test_detects_wrong_gradients_of_weights(precision):
    module = OPERATORS["conv"]()
    for corrupt in (scale_all, lambda values: values.zero_()):
        for name in ("weight", "bias"):
            call = make_call(module, precision)
            corrupt(call.parameter_gradients[name])
            worst = measure_error(module, call, precision)
            assert worst.error > 1.0
            assert worst.detail == f"it: gradient of {name}"
    call.parameter_gradients.clear()
    assert measure_error(module, call, precision).error == math.inf


@pytest.mark.parametrize("precision", FORMATS, ids=lambda param: param.name)
def test_a_norm_is_compared_with_independent_sums(precision, messages):
    torch.manual_seed(1)
    module = SpatialBatchNorm2d(16, tiling=TILING, dtype=precision.weights)
    before = module.running_mean.clone(), module.running_var.clone()
    pixels = round_to(3 + torch.randn(2, 16, SIDE, SIDE), precision).requires_grad_()
    output = module(pixels)
    gradient = round_to(torch.randn(output.shape), precision)
    output.backward(gradient)
    grads = {name: parameter.grad for name, parameter in module.named_parameters()}

    def measure_worst(**changes):
        errors = OperatorErrors()
        fields = {"output": output.detach(), "input_gradient": pixels.grad}
        check = NormCheck(
            "it", module, MPI.COMM_SELF, [0], Rounding.from_precision(precision), errors
        )
        fields |= {"parameter_gradients": grads} | changes
        call = OperatorCall(pixels.detach(), output_gradient=gradient, **fields)
        check.check_statistics(call, before)
        check.check(call)
        return errors.worst_element

    assert measure_worst().error < 0.5, measure_worst().detail
    assert measure_worst(output=output.detach() * 1.05).error > 1.0
    assert measure_worst(input_gradient=gradient).error > 1.0
    wrong = {"weight": grads["weight"] * 1.05, "bias": grads["bias"]}
    messages.check(measure_worst(parameter_gradients=wrong).detail)
    module.running_var.mul_(1.01)
    assert measure_worst().error > 1.0
    messages.check(measure_worst().detail)


@pytest.mark.parametrize("kernel", [1, 2, 3, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1, 3])
def test_readers_are_all_outputs_that_read_a_pixel(kernel, stride, padding):
    length = 11
    axis = WindowAxis(kernel, stride, padding)
    outputs = Window(kernel, stride, padding)
    count = outputs.count_outputs(length)
    reads = {out: set(range(*axis.find_read((out, out + 1)))) for out in range(count)}
    for first in range(length):
        for last in range(first + 1, length + 1):
            expected = [out for out in range(count) if reads[out] & set(range(first, last))]
            readers = axis.find_readers((first, last), count)
            assert list(range(*readers)) == expected


def test_a_wrong_shape_has_an_infinite_error():
    error, _ = find_worst_pixel(
        torch.zeros(1, 2, 3, 3), torch.zeros(1, 2, 3, 4), torch.ones(1, 3, 4)
    )
    assert error == math.inf


# Scales of tensors


def measure_scale_error(values, exact):
    scale = ScaleError(Rounding.from_precision(BF16))
    scale.add(values, exact.double(), exact.double().abs())
    return scale.error


@pytest.mark.parametrize("factor", [0.0, 0.99, 1.01])
def test_detects_a_scaled_tensor_of_16_bits(factor):
    exact = torch.randn(64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert measure_scale_error(exact.bfloat16(), exact) < 1.0
    assert measure_scale_error((exact * factor).bfloat16(), exact) > 2.0


def test_empty_tensors_pass_and_other_shapes_fail():
    assert measure_scale_error(torch.zeros(1, 3, 0, 2), torch.zeros(1, 3, 0, 0)) == 0.0
    assert measure_scale_error(torch.zeros(1, 3, 1, 2), torch.zeros(1, 3, 1, 1)) == math.inf
