"""The benchmark ``halo.compute``: a convolution over tiles, with its halo exchange."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from spbench_core.catalog.tiles import make_conv_kwargs
from spbench_parallel.device.formats import TORCH_DTYPES, autotune_convolutions
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.pixels import IntegerImage
from spbench_parallel.spatial.tiling import Tiling
from spbench_workers.benchmarks.halo.conv_times import (
    TiledConvolution,
    report_backward,
    report_parts,
    report_speedup,
)
from spbench_workers.benchmarks.halo.entry import ComputeParams
from spbench_workers.benchmarks.halo.operator_checks import (
    OperatorCase,
    Tolerance,
    Tolerances,
    inject_faults,
    make_tile,
    make_tiling,
)
from spbench_workers.benchmarks.halo.report import report_choice, time_waits
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device
from spbench_workers.exact_numbers import (
    Spread,
    choose_spread,
    insert_wide,
    largest_convolved,
    shows_tf32,
    whole_numbers,
)
from spbench_workers.timing import measure

TOLERANCE = 0.25
"""Results are whole numbers: a wrong one is at least 1 away. Fast algorithms (Winograd) multiply by
fractions and round a little, below this: see `largest_convolved`."""
MAX_GRADIENTS = 1 << 14
"""Values of an output channel whose gradient is not zero, at most. They are 1 or -1, the inputs 128
at most: the sum of their products stays far below what fp16 can hold."""


def run(context: Context) -> None:
    """Run the case."""
    with autotune_convolutions():
        convolution, case = _make(context)
        report_choice(context, convolution.gather.forward)
        case.report_choice()
        tolerances = _tolerances(context, case)
        case.warm_up()
        worst = case.check([1, 2], tolerances)
        exchanges = [convolution.gather.forward]
        with torch.no_grad(), time_waits(exchanges, convolution.device) as waits:
            times = measure(context, convolution.forward, waits=waits)
        case.check_and_report(worst, [3, 4], tolerances)
        with torch.no_grad():
            report_parts(context, convolution)
            report_speedup(context, convolution, case, context.median_of_slowest(times))
        report_backward(context, convolution)
        convolution.module.free()


def _make(context: Context) -> tuple[TiledConvolution, OperatorCase]:
    params = context.read_params(ComputeParams)
    tiling = make_tiling(context)
    place = choose_device(context)
    dtype = TORCH_DTYPES[params.dtype]
    sizes = make_conv_kwargs(params)
    channels = params.in_channels, params.out_channels
    module = SpatialConv2d(
        *channels,
        **sizes,
        tiling=tiling,
        gradient_dtype=torch.float16 if params.fp16_allreduce else None,
        device=place,
        dtype=dtype,
    )
    plain = nn.Conv2d(*channels, **sizes, dtype=torch.float64)
    rows, cols = module.kernel_size
    limit = largest_convolved(dtype, (rows, cols), gpu=is_gpu(place))
    wide = shows_tf32(limit)
    spread = choose_spread(_terms(module), limit, wide=wide)
    _set_parameters(context, module, plain, spread, wide=wide)
    batch = params.batch_size
    image = _image(context, "image", batch, channels[0], tiling, spread)
    gradient = _image(context, "gradient", batch, channels[1], module.output, spread)
    room = module.tiled.padded_box
    tile = make_tile(context, image, tiling, dtype, place, room)
    choice = module.tiled.choose_overlap(tile.requires_grad_(), module.operator(), timed=True)
    module.tiled.tiling = replace(tiling, overlap=choice.overlap)
    if context.world.rank == 0:
        context.choice("overlap", "on" if choice.overlap else "off", choice.reason)
    way = module.tiled.executions[choice.overlap]
    gather = inject_faults(context, way.gathers.get(tile))
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
        room=room,
        whole_numbers=True,
    )
    return TiledConvolution(module, way, tile, gather, place), case


def _terms(module: nn.Conv2d) -> int:
    """Return how many products are added up, at most, for an output or an input's gradient."""
    taps = module.kernel_size[0] * module.kernel_size[1]
    return max(module.in_channels, module.out_channels) * taps


def _set_parameters(
    context: Context, module: SpatialConv2d, plain: nn.Conv2d, spread: Spread, *, wide: bool
) -> None:
    weight = whole_numbers(tuple(plain.weight.shape), spread, context.seed_for("weight"))
    if wide:
        _put_wide_weights(weight, context.seed_for("wide weight"))
    assert plain.bias is not None
    bias = torch.arange(len(plain.bias)).remainder(3).double() - 1.0
    for conv in (module, plain):
        conv.load_state_dict({"weight": weight, "bias": bias})


def _put_wide_weights(weight: torch.Tensor, seed: int) -> None:
    """Make one weight of a channel such that TF32 would change it.

    No output has two of them, nor has the gradient of an input: each is between another pair of
    channels. So both stay exact in fp32, and are wrong where they are multiplied as TF32. The
    factors of the weights' own gradients have none: sums over all pixels would not stay exact.
    """
    pairs = torch.arange(min(weight.shape[:2]))
    taps = weight.flatten(2)
    wide = taps[pairs, pairs]
    insert_wide(wide, 1, seed)
    taps[pairs, pairs] = wide


def _image(
    context: Context, name: str, batch: int, channels: int, tiling: Tiling, spread: Spread
) -> IntegerImage:
    height = tiling.partition.height
    width = tiling.partition.width
    largest = spread.largest
    share = spread.share
    if name == "gradient":
        largest, share = 1, min(share, MAX_GRADIENTS / (batch * height * width))
    share_16 = max(1, round(share * (1 << 16)))
    return IntegerImage(batch, channels, height, width, context.seed_for(name), largest, share_16)


def _tolerances(context: Context, case: OperatorCase) -> Tolerances:
    """Return the tolerances: outputs and input gradients are exact, parameter gradients are not.

    These are sums over all pixels, added in fp32 at least, and rounded once a tile and
    once in the allreduce.
    """
    dtype = case.template.dtype
    wire = torch.float16 if context.read_params(ComputeParams).fp16_allreduce else dtype
    rounding = max(torch.finfo(dtype).eps, torch.finfo(wire).eps)
    inner = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    image = case.image
    gradient = case.gradient
    assert isinstance(image, IntegerImage)
    assert isinstance(gradient, IntegerImage)
    pixels = gradient.batch * gradient.height * gradient.width * gradient.share / (1 << 16)
    sums = 8 * inner * pixels * image.largest * gradient.largest
    return Tolerances(
        Tolerance(TOLERANCE),
        Tolerance(TOLERANCE),
        Tolerance(TOLERANCE + sums, relative=4 * rounding),
    )
