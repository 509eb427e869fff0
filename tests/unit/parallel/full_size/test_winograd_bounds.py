"""Bounds of windows in fp32 on a GPU.

A GPU may convolve by Winograd's algorithm F(4x4, 3x3).
"""

import math
from unittest.mock import patch

import pytest
import torch
from mpi4py import MPI
from torch import nn
from torch.nn import functional

from spbench_core.layout.tiles import Grid
from spbench_parallel.full_size.bound import (
    Rounding,
)
from spbench_parallel.full_size.calls import OperatorCall, OperatorErrors
from spbench_parallel.full_size.plain import PlainCheck
from spbench_parallel.full_size.regions import Regions, WindowAxis, fetch, view_box
from spbench_parallel.full_size.window_operators import create_window_operator
from spbench_parallel.full_size.windows import WindowCheck
from spbench_parallel.full_size.winograd import (
    AMPLIFICATION,
    REACH,
    fits_winograd,
    may_use_winograd,
)
from spbench_parallel.models.modules import SpatialShiftedConv2d
from spbench_parallel.precision.formats import BF16, FP16, FP32, FP64, TF32
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_parallel.spatial.tiling import Tiling
from standins.late_device import install
from standins.winograd import INPUT, KERNEL, OUTPUT, WinogradConvolutions

pytestmark = pytest.mark.slow
install()
CPU = torch.device("cpu")
GPU = torch.device("late")
FORMATS = [FP64, FP32, TF32, FP16, BF16]
SIDE = 18
CHANNELS = 3
OUTPUTS = 8
TILING = Tiling.of_grid(MPI.COMM_SELF, Grid(1, 1), SIDE, SIDE, transport="packed")


def test_amplification_follows_from_matrices():
    before, kernel, after = (torch.tensor(rows).double() for rows in (INPUT, KERNEL, OUTPUT))
    squares = after.square() * kernel.square().sum(1) * before.square().sum(1)
    assert float(squares.sum(1).max()) == pytest.approx(AMPLIFICATION)


def test_amplification_bounds_each_product_of_winograd():
    generator = torch.Generator().manual_seed(0)
    before, weights, after = (torch.tensor(rows).double() for rows in (INPUT, KERNEL, OUTPUT))
    for _ in range(100):
        tile = torch.randn(CHANNELS, 6, 6, generator=generator, dtype=torch.float64) ** 3
        kernel = torch.randn(CHANNELS, 3, 3, generator=generator, dtype=torch.float64) ** 3
        magnitudes = ((before @ tile @ before.T) * (weights @ kernel @ weights.T)).abs().sum(0)
        error = (after.square() @ magnitudes.square() @ after.T.square()).sqrt()
        assert float(error.max()) < AMPLIFICATION * float(tile.norm() * kernel.norm())


@pytest.mark.parametrize("precision", FORMATS, ids=lambda param: param.name)
@pytest.mark.parametrize("device", [CPU, torch.device("cuda"), GPU], ids=str)
def test_only_fp32_on_gpu_may_use_winograd(device, precision):
    expected = device != CPU and precision == FP32
    assert may_use_winograd(device, Rounding.from_precision(precision)) == expected


@pytest.mark.parametrize(
    ("axis", "fits"),
    [
        (WindowAxis(3, 1, 1), True),
        (WindowAxis(3, 1, 0), True),
        (WindowAxis(3, 2, 1), False),
        (WindowAxis(3, 1, 2, 2), False),
        (WindowAxis(1, 1, 0), False),
        (WindowAxis(7, 1, 3), False),
    ],
)
def test_winograd_fits_windows_of_3x3_with_stride_1(axis, fits):
    assert fits_winograd((axis, axis)) == fits
    assert not fits_winograd((axis, WindowAxis(1, 1, 0)))


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_margin_has_all_outputs_of_blocks_that_reach_a_tile(padding):
    grid = Grid(2, 3)
    size = SIDE + 2 * padding - 2, SIDE + 2 * padding - 2
    axes = (WindowAxis(3, 1, padding), WindowAxis(3, 1, padding))
    tiles, output_tiles = (
        [grid.tile(rank, *sides) for rank in range(6)] for sides in ((SIDE, SIDE), size)
    )
    regions = Regions.from_tiles(axes, tiles, output_tiles, size, margin=REACH)
    for tile, outputs in zip(tiles, regions.outputs, strict=True):
        for axis, pixels, output_range in zip(
            axes, (tile.rows, tile.cols), (outputs.rows, outputs.cols), strict=True
        ):
            reached = max(0, pixels[0] - REACH), min(SIDE, pixels[1] + REACH)
            first, last = axis.find_readers(reached, size[0])
            assert output_range[0] <= first
            assert output_range[1] >= last


# The bound of a GPU


def make_conv(weight):
    module = SpatialConv2d(CHANNELS, OUTPUTS, 3, 1, 1, bias=False, tiling=TILING)
    with torch.no_grad():
        module.weight.copy_(weight)
    return module


def make_winograd_call(module, pixels):
    """Return a call of a convolution that is computed by Winograd's algorithm."""
    pixels = pixels.clone().requires_grad_()
    with WinogradConvolutions() as convolutions:
        output = torch.conv2d(pixels, module.weight, None, 1, 1)
        gradient = torch.randn(output.shape)
        output.backward(gradient)
    assert (convolutions.forward, convolutions.backward) == (1, 1)
    gradients = {"weight": module.weight.grad}
    return OperatorCall(pixels.detach(), output.detach(), gradient, pixels.grad, gradients)


def move_to(module, call, device):
    """Put a convolution and its call on a device."""
    moved = OperatorCall(
        call.pixels.to(device),
        call.output.to(device),
        call.output_gradient.to(device),
        call.input_gradient.to(device),
        {name: value.to(device) for name, value in call.parameter_gradients.items()},
    )
    return module.to(device), moved


def check_call(module, call, precision=FP32):
    errors = OperatorErrors()
    rounding = Rounding.from_precision(precision)
    WindowCheck("it", module, MPI.COMM_SELF, precision.work, rounding, errors).check(call)
    return errors


def make_corner_kernels():
    """Return kernels of one weight, in the corner that Winograd amplifies most."""
    weight = torch.zeros(OUTPUTS, CHANNELS, 3, 3)
    weight[:, :, 2, 2] = torch.randn(OUTPUTS, CHANNELS)
    return weight


def make_zeros_next_to_large():
    pixels = 1000 * torch.randn(1, CHANNELS, SIDE, SIDE)
    pixels[:, :, :, 9:] = 0
    return pixels


def make_resonant_tile():
    """Return a tile like the row of the input transform that is amplified most."""
    pixels = torch.zeros(1, CHANNELS, SIDE, SIDE)
    row = torch.tensor(INPUT[5]).float()
    # With a padding of 1, blocks begin at outputs 0, 4, 8, and their tiles a pixel earlier.
    pixels[:, :, 7:13, 7:13] = torch.randn(1, CHANNELS, 1, 1) * torch.outer(row, row)
    return pixels


PIXELS = {
    "random": lambda: torch.randn(1, CHANNELS, SIDE, SIDE),
    "zeros next to large": make_zeros_next_to_large,
    "resonant": make_resonant_tile,
}
KERNELS = {"random": lambda: torch.randn(OUTPUTS, CHANNELS, 3, 3), "corner": make_corner_kernels}


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("pixels", PIXELS)
def test_winograd_passes_bound_of_gpu_and_exceeds_bound_of_cpu(pixels, kernels, late):
    for seed in range(5):
        torch.manual_seed(seed)
        module = make_conv(KERNELS[kernels]())
        call = make_winograd_call(module, PIXELS[pixels]())
        cpu = check_call(module, call)
        gpu = check_call(*move_to(module, call, GPU))
        assert cpu.worst_element.error > 1.5
        assert gpu.worst_element.error < 0.2
        assert gpu.worst_scale.error == pytest.approx(cpu.worst_scale.error)
        assert gpu.worst_scale.error < 0.2


@pytest.mark.parametrize("part", ["output", "input_gradient"])
def test_bound_of_gpu_finds_wrong_pixel(part, late):
    torch.manual_seed(0)
    module = make_conv(KERNELS["random"]())
    call = make_winograd_call(module, PIXELS["random"]())
    values = getattr(call, part)
    values[0, :, 0, 0] += values.square().mean().sqrt() / 100
    errors = check_call(*move_to(module, call, GPU))
    assert errors.worst_element.error > 1
    assert "at row 0, column 0" in errors.worst_element.detail


def check_plain(module, call):
    """Check a call like one of a convolution that a rank computes locally."""
    plain = nn.Conv2d(CHANNELS, OUTPUTS, 3, 1, 1, bias=False, device=module.weight.device)
    with torch.no_grad():
        plain.weight.copy_(module.weight)
    errors = OperatorErrors()
    rounding = Rounding.from_precision(FP32)
    PlainCheck("it", plain, FP32.work, rounding, errors).check(call)
    return errors


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("pixels", PIXELS)
def test_winograd_passes_bound_of_a_whole_image_on_a_gpu(pixels, kernels, late):
    for seed in range(5):
        torch.manual_seed(seed)
        module = make_conv(KERNELS[kernels]())
        call = make_winograd_call(module, PIXELS[pixels]())
        gpu = check_plain(*move_to(module, call, GPU))
        assert gpu.worst_element.error < 1.0, gpu.worst_element.detail
        assert gpu.worst_scale.error < 0.2


def test_winograd_exceeds_the_bound_of_a_whole_image_on_a_cpu():
    torch.manual_seed(0)
    module = make_conv(KERNELS["corner"]())
    call = make_winograd_call(module, PIXELS["zeros next to large"]())
    assert check_plain(module, call).worst_element.error > 1.0


@pytest.mark.parametrize("part", ["output", "input_gradient"])
def test_bound_of_a_whole_image_on_a_gpu_finds_wrong_pixel(part, late):
    torch.manual_seed(0)
    module = make_conv(KERNELS["random"]())
    call = make_winograd_call(module, PIXELS["random"]())
    values = getattr(call, part)
    values[0, :, 0, 0] += values.square().mean().sqrt() / 100
    errors = check_plain(*move_to(module, call, GPU))
    assert errors.worst_element.error > 1
    assert "at row 0, column 0" in errors.worst_element.detail


# All other bounds


OPERATORS = {
    "3x3": lambda: SpatialConv2d(CHANNELS, OUTPUTS, 3, 1, 1, tiling=TILING),
    "stride 2": lambda: SpatialConv2d(CHANNELS, OUTPUTS, 3, 2, 1, tiling=TILING),
    "dilation 2": lambda: SpatialConv2d(CHANNELS, OUTPUTS, 3, 1, 2, 2, tiling=TILING),
    "1x7": lambda: SpatialConv2d(CHANNELS, OUTPUTS, (1, 7), 1, (0, 3), tiling=TILING),
    "1x1": lambda: SpatialConv2d(CHANNELS, OUTPUTS, 1, tiling=TILING),
    "shifted": lambda: SpatialShiftedConv2d(CHANNELS, OUTPUTS, tiling=TILING),
    "max": lambda: SpatialMaxPool2d(3, 1, 1, tiling=TILING),
    "mean": lambda: SpatialAvgPool2d(3, 1, 1, tiling=TILING),
}


def make_call(module, precision):
    """Return a call with random values, which do not affect the bounds."""
    torch.manual_seed(0)
    shape = 1, module.output.partition.height, module.output.partition.width
    pixels = torch.randn(1, CHANNELS, SIDE, SIDE).to(precision.work)
    channels = OUTPUTS if isinstance(module, SpatialConv2d) else CHANNELS
    output, gradient = (torch.randn(1, channels, *shape[1:]).to(precision.work) for _ in range(2))
    parameters = {
        name: torch.randn(parameter.shape) for name, parameter in module.named_parameters()
    }
    return OperatorCall(
        pixels, output, gradient, torch.randn(pixels.shape).to(precision.work), parameters
    )


def record_bounds(module, call, precision):
    """Return the bounds of outputs, of input gradients and of parameter gradients."""
    bounds = []
    bound = Rounding.bound

    def record_bound(*args):
        bounds.append(bound(*args))
        return bounds[-1]

    with patch.object(Rounding, "bound", record_bound):
        check_call(module, call, precision)
    return [bound.cpu() for bound in bounds]


def compute_sum_bounds(module, call, precision):
    """Return the same bounds by the formula for sums, on the CPU."""
    rounding = Rounding.from_precision(precision)
    window = create_window_operator(module, precision.work)
    tile = module.tiled.tiling.partition
    output_partition = module.tiled.output.partition
    size = output_partition.height, output_partition.width
    regions = Regions.from_tiles(window.axes, [tile.tile(0)], [output_partition.tile(0)], size)
    pixels = fetch(MPI.COMM_SELF, call.pixels, regions.tiles, regions.inputs, window.fill).double()
    pixels.requires_grad_()
    parameters = [
        tensor.detach().to(precision.work).double().requires_grad_()
        for tensor in module.parameters()
    ]
    inside = []
    if isinstance(module, SpatialAvgPool2d):
        inside.append(functional.pad(torch.ones(1, 1, SIDE, SIDE).double(), (1, 1, 1, 1)))
    output = window.compute(pixels, *inside, *parameters)
    squares = pixels.detach().nan_to_num(0.0, 0.0, 0.0).square().sum(1, keepdim=True)
    reach = window.sum_windows(squares.requires_grad_())
    gradient = call.output_gradient.double()
    (input_gradient,) = torch.autograd.grad(output, pixels, gradient, retain_graph=True)
    (spread,) = torch.autograd.grad(reach, squares, gradient.square().sum(1, keepdim=True))
    box = regions.inputs[0]
    expected = torch.zeros(call.pixels.shape, dtype=torch.float64)
    magnitude = expected[:, :1].clone()
    inner = tile.tile(0).intersect(box)
    view_box(expected, tile.tile(0), inner).copy_(view_box(input_gradient, box, inner))
    view_box(magnitude, tile.tile(0), inner).copy_(view_box(spread, box, inner))

    def bound(norm, magnitude, terms, values):
        rounded = norm + magnitude / math.sqrt(max(1.0, terms))
        underflow = rounding.smallest * math.sqrt(max(1.0, values))
        error = rounding.work_epsilon * rounded + rounding.sum_epsilon * magnitude + underflow
        return 2.0 * (error + rounding.factor_epsilon * magnitude)

    def lengths(values):
        return values.square().sum(1).sqrt()

    reach = reach.detach()
    bounds = [
        bound(
            lengths(output.detach()),
            reach.sqrt()[:, 0] * window.weight_norm,
            window.terms,
            output.shape[1],
        ),
        bound(
            lengths(expected),
            magnitude.sqrt()[:, 0] * window.weight_norm,
            window.gradient_terms,
            CHANNELS,
        ),
    ]
    if parameters:
        gradients = torch.autograd.grad(output, parameters, gradient)
        count = size[0] * size[1]
        for tensor in gradients:
            reached = float(reach.sum()) if tensor.dim() > 1 else count
            length = math.sqrt(reached * float(gradient.square().sum()))
            flat = tensor.reshape(-1)
            bounds.append(bound(flat.norm(), flat.new_tensor(length), count, flat.numel()))
    return bounds


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("precision", FORMATS, ids=lambda param: param.name)
@pytest.mark.parametrize("name", OPERATORS)
def test_all_other_bounds_equal_those_of_sums(name, precision, device, late):
    module = OPERATORS[name]()
    call = make_call(module, precision)
    expected = compute_sum_bounds(module, call, precision)
    module, call = move_to(module, call, device)
    bounds = record_bounds(module, call, precision)
    pairs = list(zip(bounds, expected, strict=True))
    if (name, precision, device) == ("3x3", FP32, GPU):
        assert all(bool((bound > 100 * sum_bound).all()) for bound, sum_bound in pairs[:2])
        pairs = pairs[2:]
        assert all(
            float(bound) == pytest.approx(float(sum_bound), rel=1e-12) for bound, sum_bound in pairs
        )
    else:
        assert all(torch.equal(bound, sum_bound) for bound, sum_bound in pairs)
