"""Benchmark ``halo.compute``: a convolution over tiles with its halo exchange."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from spbench_core.catalog.tiles import make_conv_kwargs
from spbench_parallel.device.formats import TORCH_DTYPES, autotune_convolutions
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.execution import TiledExecution
from spbench_parallel.spatial.pixels import IntegerImage
from spbench_parallel.spatial.tiling import Tiling
from spbench_workers.benchmarks.halo.compare import Tolerance, Tolerances
from spbench_workers.benchmarks.halo.conv_times import (
    TiledConvolution,
    report_backward,
    report_parts,
    report_speedup,
)
from spbench_workers.benchmarks.halo.operator_checks import (
    OperatorCase,
    inject_faults,
    make_tile,
    make_tiling,
)
from spbench_workers.benchmarks.halo.params import ComputeParams
from spbench_workers.benchmarks.halo.report import report_choice, time_waits
from spbench_workers.benchmarks.halo.sampling import LIMITS, SamplingLimits
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device
from spbench_workers.exact_numbers import (
    NumberDistribution,
    choose_distribution,
    compute_largest_convolved_sum,
    draw_whole_numbers,
    insert_wide,
    shows_tf32,
)
from spbench_workers.timing import measure

TOLERANCE = 0.25
"""Results are whole numbers, so a wrong one is off by at least 1. Fast algorithms (Winograd)
multiply by fractions; their rounding stays below this tolerance; see
`compute_largest_convolved_sum`."""
MAX_GRADIENTS = 1 << 14
"""The most values of an output channel with a gradient other than zero. Gradients are 1 or -1 and
inputs at most 128, so the sum of their products stays far below the largest number of fp16."""


def run(context: Context, *, sampling_limits: SamplingLimits = LIMITS) -> None:
    """Run the case."""
    with autotune_convolutions():
        convolution, case = _open_case(context, sampling_limits)
        report_choice(context, convolution.gather.forward)
        case.report_sampling()
        tolerances = _compute_tolerances(context, case)
        case.warm_up()
        worst = case.check([1, 2], tolerances)
        exchanges = [convolution.gather.forward]
        with torch.no_grad(), time_waits(exchanges, convolution.device) as waits:
            times_ms = measure(context, convolution.forward, waits=waits)
        case.check_and_report(worst, [3, 4], tolerances)
        with torch.no_grad():
            report_parts(context, convolution)
            report_speedup(context, convolution, case, context.median_of_slowest(times_ms))
        report_backward(context, convolution)
        convolution.module.free()


def _open_case(
    context: Context, sampling_limits: SamplingLimits = LIMITS
) -> tuple[TiledConvolution, OperatorCase]:
    """Return the timed convolution with its input, and the case that checks it."""
    tiling = make_tiling(context)
    device = choose_device(context)
    module, plain, distribution = _make_convolutions(context, tiling, device)

    params = context.read_params(ComputeParams)
    batch_size = params.batch_size
    image = _make_image(context, "image", batch_size, params.in_channels, tiling, distribution)
    gradient = _make_image(
        context, "gradient", batch_size, params.out_channels, module.output, distribution
    )
    buffer_box = module.tiled.padded_box
    tile = make_tile(context, image, tiling, TORCH_DTYPES[params.dtype], device, buffer_box)
    execution = _choose_execution(context, module, tile)

    # A fault goes into the gather of the chosen execution, which the timed loop uses, too.
    gather = inject_faults(context, execution.gathers.get(tile))
    tile.requires_grad_(False)
    case = OperatorCase(
        context=context,
        tiled=module,
        plain=plain,
        windows=[module.window],
        gather=gather,
        gathers=lambda: [gather],
        input_tiling=tiling,
        output_tiling=module.output,
        image=image,
        gradient=gradient,
        template=tile,
        buffer_box=buffer_box,
        whole_numbers=True,
        sampling_limits=sampling_limits,
    )
    return TiledConvolution(module, execution, tile, gather, device), case


class _Convolutions(NamedTuple):
    """A convolution over tiles, the same in float64, and the distribution of data."""

    tiled: SpatialConv2d
    plain: nn.Conv2d
    distribution: NumberDistribution


def _make_convolutions(context: Context, tiling: Tiling, device: torch.device) -> _Convolutions:
    params = context.read_params(ComputeParams)
    dtype = TORCH_DTYPES[params.dtype]
    conv_kwargs = make_conv_kwargs(params)
    channels = params.in_channels, params.out_channels
    module = SpatialConv2d(
        *channels,
        **conv_kwargs,
        tiling=tiling,
        gradient_dtype=torch.float16 if params.fp16_allreduce else None,
        device=device,
        dtype=dtype,
    )
    plain = nn.Conv2d(*channels, **conv_kwargs, dtype=torch.float64)

    rows, cols = module.kernel_size
    max_exact = compute_largest_convolved_sum(dtype, (rows, cols), gpu=is_gpu(device))
    has_wide_values = shows_tf32(max_exact)
    distribution = choose_distribution(_count_terms(module), max_exact, wide=has_wide_values)
    _set_parameters(context, module, plain, distribution, wide=has_wide_values)
    return _Convolutions(module, plain, distribution)


def _choose_execution(
    context: Context, module: SpatialConv2d, tile: torch.Tensor
) -> TiledExecution:
    """Choose overlap or not, and return the execution; the tile requires a gradient."""
    choice = module.tiled.choose_overlap(tile.requires_grad_(), module.operator(), timed=True)
    module.tiled.tiling = replace(module.tiled.tiling, overlap=choice.overlap)
    if context.world.rank == 0:
        context.choice("overlap", "on" if choice.overlap else "off", choice.reason)
    return module.tiled.executions[choice.overlap]


def _count_terms(module: nn.Conv2d) -> int:
    """Return the most products in the sum of an output or an input's gradient."""
    taps = module.kernel_size[0] * module.kernel_size[1]
    return max(module.in_channels, module.out_channels) * taps


def _set_parameters(
    context: Context,
    module: SpatialConv2d,
    plain: nn.Conv2d,
    distribution: NumberDistribution,
    *,
    wide: bool,
) -> None:
    weight = draw_whole_numbers(tuple(plain.weight.shape), distribution, context.seed_for("weight"))
    if wide:
        _add_wide_weights(weight, context.seed_for("wide weight"))
    assert plain.bias is not None
    bias = torch.arange(len(plain.bias)).remainder(3).double() - 1.0
    for conv in (module, plain):
        conv.load_state_dict({"weight": weight, "bias": bias})


def _add_wide_weights(weight: torch.Tensor, seed: int) -> None:
    """Set one weight of each channel to a number that TF32 rounds.

    Each such weight connects a different pair of channels, so no output and no input gradient has
    two of them. Both stay exact in fp32 and become wrong in TF32. Images and output gradients have
    no such numbers, because the sums over all pixels in weight gradients would not stay exact.
    """
    channels = torch.arange(min(weight.shape[:2]))
    taps = weight.flatten(2)
    own_channel_taps = taps[channels, channels]
    insert_wide(own_channel_taps, 1, seed)
    taps[channels, channels] = own_channel_taps


def _make_image(
    context: Context,
    name: str,
    batch: int,
    channels: int,
    tiling: Tiling,
    distribution: NumberDistribution,
) -> IntegerImage:
    height = tiling.partition.height
    width = tiling.partition.width
    max_value = distribution.largest
    nonzero_share = distribution.share
    if name == "gradient":
        max_value, nonzero_share = 1, min(nonzero_share, MAX_GRADIENTS / (batch * height * width))
    share_of_65536 = max(1, round(nonzero_share * (1 << 16)))
    return IntegerImage(
        batch, channels, height, width, context.seed_for(name), max_value, share_of_65536
    )


def _compute_tolerances(context: Context, case: OperatorCase) -> Tolerances:
    """Return the tolerances of outputs and gradients.

    Outputs and input gradients are exact. Parameter gradients are sums over all pixels, added in
    fp32 or wider, and rounded once per tile and once in the allreduce.
    """
    dtype = case.template.dtype
    sum_dtype = torch.float16 if context.read_params(ComputeParams).fp16_allreduce else dtype
    epsilon = max(torch.finfo(dtype).eps, torch.finfo(sum_dtype).eps)
    sum_epsilon = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    image = case.image
    gradient = case.gradient
    assert isinstance(image, IntegerImage)
    assert isinstance(gradient, IntegerImage)
    nonzero_pixels = gradient.batch * gradient.height * gradient.width * gradient.share / (1 << 16)
    sum_error = 8 * sum_epsilon * nonzero_pixels * image.largest * gradient.largest
    return Tolerances(
        Tolerance(TOLERANCE),
        Tolerance(TOLERANCE),
        Tolerance(TOLERANCE + sum_error, relative=4 * epsilon),
    )
