"""Checks of operators at full size: what they let pass, and what not, in every format."""

import math

import pytest
import torch
from mpi4py import MPI
from torch.nn import functional

from spbench_core.layout.tiles import Grid
from spbench_core.layout.window import Window
from spbench_parallel.full_size.bound import OperatorErrors, Rounding, ScaleError, worst_pixel
from spbench_parallel.full_size.regions import WindowAxis
from spbench_parallel.full_size.whole_image import NormCheck
from spbench_parallel.full_size.windows import OperatorCall, WindowCheck
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


def rounded(values, precision):
    return values.to(precision.work)


def call_of(module, precision, seed=0):
    """A call as the format has it: exact products, rounded once."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape) / 8)
    pixels = rounded(torch.randn(2, 16, SIDE, SIDE, dtype=torch.float64), precision)
    parameters = {
        name: rounded(one.detach(), precision).double().requires_grad_()
        for name, one in module.named_parameters()
    }
    wide = pixels.double().requires_grad_()
    found = plain(module, wide, **parameters)
    gradient = rounded(torch.randn(found.shape, dtype=torch.float64), precision)
    found.backward(gradient.double())
    return OperatorCall(
        pixels,
        rounded(found.detach(), precision),
        gradient,
        rounded(wide.grad, precision),
        {name: rounded(one.grad, precision) for name, one in parameters.items()},
    )


def plain(module, pixels, weight=None, bias=None):
    match module:
        case SpatialShiftedConv2d():
            return functional.conv2d(pixels[:, :, 1::2, 1::2], weight)
        case SpatialConv2d():
            return functional.conv2d(pixels, weight, bias, module.stride, module.padding)
        case SpatialMaxPool2d():
            return functional.max_pool2d(pixels, 3, 2, 1)
    return functional.avg_pool2d(pixels, 3, 1, 1, count_include_pad=False)


def error_of(module, call, precision):
    errors = OperatorErrors()
    rounding = Rounding.from_precision(precision)
    WindowCheck("it", module, MPI.COMM_SELF, precision.work, rounding, errors).check(call)
    return errors.single


@pytest.mark.parametrize("precision", FORMATS, ids=lambda one: one.name)
@pytest.mark.parametrize("name", OPERATORS)
def test_what_is_rounded_passes(name, precision):
    for seed in range(5):
        module = OPERATORS[name]()
        worst = error_of(module, call_of(module, precision, seed), precision)
        assert 0.0 <= worst.error < 0.5, worst.detail


def corner(values):
    """The channels of one pixel are off by as much as values are large."""
    values[0, :, 0, 0] += values.square().mean().sqrt()


def scaled(values):
    values.mul_(1.05)


def not_a_number(values):
    values[0, 0, 0, 0] = math.nan


@pytest.mark.parametrize("precision", FORMATS, ids=lambda one: one.name)
@pytest.mark.parametrize("spoil", [corner, scaled, not_a_number])
@pytest.mark.parametrize(("part", "word"), [("output", "output"), ("input_gradient", "input grad")])
@pytest.mark.parametrize("name", OPERATORS)
def test_one_wrong_pixel_and_a_wrong_scale_are_found(name, part, word, spoil, precision):
    module = OPERATORS[name]()
    call = call_of(module, precision)
    spoil(getattr(call, part))
    worst = error_of(module, call, precision)
    assert worst.error > 1.0
    assert worst.detail.startswith(f"it: {word}")


@pytest.mark.parametrize("precision", FORMATS, ids=lambda one: one.name)
def test_wrong_gradients_of_weights_are_found(precision):
    module = OPERATORS["conv"]()
    for spoil in (scaled, lambda values: values.zero_()):
        for name in ("weight", "bias"):
            call = call_of(module, precision)
            spoil(call.parameter_gradients[name])
            worst = error_of(module, call, precision)
            assert worst.error > 1.0
            assert worst.detail == f"it: gradient of {name}"
    call.parameter_gradients.clear()
    assert error_of(module, call, precision).error == math.inf


@pytest.mark.parametrize("precision", FORMATS, ids=lambda one: one.name)
def test_a_norm_is_held_against_sums_of_its_own(precision):
    torch.manual_seed(1)
    module = SpatialBatchNorm2d(16, tiling=TILING, dtype=precision.weights)
    before = module.running_mean.clone(), module.running_var.clone()
    pixels = rounded(3 + torch.randn(2, 16, SIDE, SIDE), precision).requires_grad_()
    found = module(pixels)
    gradient = rounded(torch.randn(found.shape), precision)
    found.backward(gradient)
    grads = {name: one.grad for name, one in module.named_parameters()}

    def worst_of(**other):
        errors = OperatorErrors()
        words = {"output": found.detach(), "input_gradient": pixels.grad}
        check = NormCheck(
            "it", module, MPI.COMM_SELF, [0], Rounding.from_precision(precision), errors
        )
        words |= {"parameter_gradients": grads} | other
        call = OperatorCall(pixels.detach(), output_gradient=gradient, **words)
        check.check_statistics(call, before)
        check.check(call)
        return errors.single

    assert worst_of().error < 0.5, worst_of().detail
    assert worst_of(output=found.detach() * 1.05).error > 1.0
    assert worst_of(input_gradient=gradient).error > 1.0
    wrong = {"weight": grads["weight"] * 1.05, "bias": grads["bias"]}
    assert "gradient of weight" in worst_of(parameter_gradients=wrong).detail
    module.running_var.mul_(1.01)
    assert worst_of().error > 1.0
    assert worst_of().detail == "it: running variance"


@pytest.mark.parametrize("kernel", [1, 2, 3, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1, 3])
def test_readers_are_all_outputs_that_read_a_pixel(kernel, stride, padding):
    length = 11
    axis = WindowAxis(kernel, stride, padding)
    outputs = Window(kernel, stride, padding)
    count = outputs.count_outputs(length)
    reads = {out: set(range(*axis.read((out, out + 1)))) for out in range(count)}
    for first in range(length):
        for last in range(first + 1, length + 1):
            wanted = [out for out in range(count) if reads[out] & set(range(first, last))]
            found = axis.readers((first, last), count)
            assert list(range(*found)) == wanted


def test_a_wrong_shape_is_no_match():
    error, _ = worst_pixel(torch.zeros(1, 2, 3, 3), torch.zeros(1, 2, 3, 4), torch.ones(1, 3, 4))
    assert error == math.inf


# Scales of tensors


def scale_error(found, wanted):
    scale = ScaleError(Rounding.from_precision(BF16))
    scale.add(found, wanted.double(), wanted.double().abs())
    return scale.error


@pytest.mark.parametrize("factor", [0.0, 0.99, 1.01])
def test_a_tensor_of_16_bits_that_is_scaled_is_found(factor):
    exact = torch.randn(64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert scale_error(exact.bfloat16(), exact) < 1.0
    assert scale_error((exact * factor).bfloat16(), exact) > 2.0


def test_the_scale_of_no_pixels_is_right_and_of_others_shapes_wrong():
    assert scale_error(torch.zeros(1, 3, 0, 2), torch.zeros(1, 3, 0, 0)) == 0.0
    assert scale_error(torch.zeros(1, 3, 1, 2), torch.zeros(1, 3, 1, 1)) == math.inf
