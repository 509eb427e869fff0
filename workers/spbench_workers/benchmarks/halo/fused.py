"""Benchmark ``halo.fused``: convolutions that share one wide exchange, or not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import sqrt

import torch
from torch import nn

from spbench_core.catalog.tiles import make_conv_kwargs, make_window
from spbench_parallel.device.formats import TORCH_DTYPES, autotune_convolutions
from spbench_parallel.device.streams import is_gpu, synchronize_stream
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.exchange import Exchange, Traffic
from spbench_parallel.spatial.fused.blocks import FusedSequential, fuse
from spbench_parallel.spatial.pixels import IntegerImage
from spbench_parallel.spatial.tiling import Tiling
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.halo.compare import Tolerance, Tolerances, compare_pixels
from spbench_workers.benchmarks.halo.operator_checks import (
    OperatorCase,
    inject_faults,
    make_tile,
    make_tiling,
)
from spbench_workers.benchmarks.halo.params import FusedParams
from spbench_workers.benchmarks.halo.report import report_choice, time_waits
from spbench_workers.benchmarks.halo.sampling import LIMITS, SamplingLimits
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device
from spbench_workers.timing import measure

MAX_VALUE = 2
"""Largest number of the data, which are whole: fp16 holds sums of products over an image."""
WINOGRAD_FACTOR = 8
"""Factor of the tolerance for cuDNN in fp32. In a model of Winograd, tiles of 6x6 were off by up to
2.5 times the tolerance without it."""


def run(context: Context, *, sampling_limits: SamplingLimits = LIMITS) -> None:
    """Run the case."""
    with autotune_convolutions():
        fused, case = _open_case(context, sampling_limits)
        report_choice(context, case.gather.forward)
        case.report_sampling()
        tolerances = estimate_tolerances(
            context.read_params(FusedParams).num_layers,
            case.template.dtype,
            gpu=is_gpu(case.template.device),
        )

        case.warm_up()
        worst = case.check([1], tolerances)

        convs = [layer for layer in fused if isinstance(layer, SpatialConv2d)]
        with torch.no_grad():
            exchanges = [gather.forward for gather in fused.gathers]
            with time_waits(exchanges, case.template.device) as waits:
                fused_times_ms = measure(context, _forward(fused, case.template), waits=waits)
            unfused = nn.Sequential(*convs)
            unfused_times_ms = measure(
                context, _forward(unfused, case.template), metric="unfused_ms"
            )

        worst["conv"].merge(_compare_outputs(fused, unfused, case, tolerances))
        case.check_and_report(worst, [2], tolerances)

        fused_ms, unfused_ms = map(context.median_of_slowest, (fused_times_ms, unfused_times_ms))
        context.metric("speedup", unfused_ms / fused_ms)
        if context.world.rank == 0:
            context.limit("time_ms", unfused_ms, "the same layers with an exchange each")
        _report_costs(context, fused, convs, case.template)
        for conv in convs:
            conv.free()
        fused.free()


def _compare_outputs(
    fused: nn.Module, unfused: nn.Module, case: OperatorCase, tolerances: Tolerances
) -> WorstError:
    """Compare the outputs of fused and unfused layers with each other."""
    with torch.no_grad():
        actual = fused(case.template).cpu()
        expected = unfused(case.template).cpu()
    tolerance = tolerances.output.max_error(expected)
    return compare_pixels(actual, expected, case.output_tiling.tile, tolerance)


def _forward(module: nn.Module, tile: torch.Tensor) -> Callable[[], object]:
    def forward() -> None:
        module(tile)
        synchronize_stream(tile.device)

    return forward


def _open_case(
    context: Context, sampling_limits: SamplingLimits = LIMITS
) -> tuple[FusedSequential, OperatorCase]:
    params = context.read_params(FusedParams)
    tiling = make_tiling(context)
    device = choose_device(context)
    dtype = TORCH_DTYPES[params.dtype]
    channels = [params.in_channels, *[params.out_channels] * params.num_layers]
    convs, plain = _make_layers(context, channels, tiling, device, dtype)
    fused = fuse(convs, tiling, params.fused_layers)
    image = _make_image(context, "image", channels[0], tiling)
    tile = make_tile(context, image, tiling, dtype, device)
    gather = inject_faults(context, fused.blocks[0].gathers.get(tile))
    case = OperatorCase(
        context=context,
        tiled=fused,
        plain=plain,
        windows=[make_window(params)] * params.num_layers,
        gather=gather,
        gathers=lambda: fused.gathers,
        input_tiling=tiling,
        output_tiling=fused.output,
        image=image,
        gradient=_make_image(context, "gradient", channels[-1], fused.output),
        template=tile,
        sampling_limits=sampling_limits,
    )
    return fused, case


def _make_layers(
    context: Context,
    channels: list[int],
    tiling: Tiling,
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[list[nn.Module], nn.Sequential]:
    """Return the layers over tiles, and the same in float64 for the whole image."""
    conv_kwargs = make_conv_kwargs(context.read_params(FusedParams))
    tiled: list[nn.Module] = []
    plain = nn.Sequential()
    for layer, (channels_in, channels_out) in enumerate(pairwise(channels)):
        plain_conv = nn.Conv2d(channels_in, channels_out, **conv_kwargs, dtype=torch.float64)
        generator = torch.Generator().manual_seed(context.seed_for("weight", layer))
        # torch's default range, rounded to the number format: both layers get equal parameters.
        max_weight = 1.0 / sqrt(plain_conv.weight[0].numel())
        for parameter in plain_conv.parameters():
            values = torch.empty(parameter.shape).uniform_(
                -max_weight, max_weight, generator=generator
            )
            parameter.data.copy_(values.to(dtype))
        conv = SpatialConv2d(
            channels_in, channels_out, **conv_kwargs, tiling=tiling, device=device, dtype=dtype
        )
        conv.load_state_dict(plain_conv.state_dict())
        plain.append(plain_conv)
        tiled.append(conv)
        tiling = conv.output
    return tiled, plain


def _make_image(context: Context, name: str, channels: int, tiling: Tiling) -> IntegerImage:
    partition = tiling.partition
    return IntegerImage(
        context.read_params(FusedParams).batch_size,
        channels,
        partition.height,
        partition.width,
        context.seed_for(name),
        MAX_VALUE,
    )


def estimate_tolerances(layers: int, dtype: torch.dtype, *, gpu: bool) -> Tolerances:
    """Return the tolerances that rounding explains after a number of layers.

    Every layer rounds, forward and backward. A parameter gradient is a sum over all pixels.
    """
    epsilon = torch.finfo(dtype).eps * (layers + 1)
    if gpu and dtype == torch.float32:
        epsilon *= WINOGRAD_FACTOR
    sum_epsilon = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    return Tolerances(
        Tolerance(relative=8 * epsilon),
        Tolerance(relative=16 * epsilon),
        Tolerance(relative=8 * epsilon + 256 * sum_epsilon),
    )


def _report_costs(
    context: Context, fused: FusedSequential, convs: list[SpatialConv2d], tile: torch.Tensor
) -> None:
    """Report traffic with and without fusion, and the share of redundant computation."""
    unfused_exchanges = []
    fused_exchanges = []
    with torch.no_grad():
        pixels = tile
        for conv in convs:
            choice = conv.tiled.choose_overlap(pixels, conv.operator())
            execution = conv.tiled.executions[choice.overlap]
            unfused_exchanges.append(execution.gathers.get(pixels).forward)
            pixels = conv(pixels)
        pixels = tile
        for block in fused.blocks:
            fused_exchanges.append(block.gathers.get(pixels).forward)
            pixels = block(pixels)
    for prefix, exchanges in (("", fused_exchanges), ("unfused_", unfused_exchanges)):
        traffic = _sum_traffic(exchanges)
        context.metric(f"{prefix}bytes_sent", traffic.bytes)
        context.metric(f"{prefix}messages_sent", traffic.messages)
    redundant_shares = [block.redundant_share for block in fused.blocks]
    context.metric("redundant_share", sum(redundant_shares) / len(redundant_shares))


def _sum_traffic(exchanges: list[Exchange]) -> Traffic:
    return Traffic(
        sum(exchange.traffic.messages for exchange in exchanges),
        sum(exchange.traffic.bytes for exchange in exchanges),
    )
