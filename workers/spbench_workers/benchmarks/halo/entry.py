"""Catalog of the halo benchmarks: exchange of halos, and convolution over tiles."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from spbench_core.catalog.benchmark import TIME_MS, Benchmark, Metric, ParamError, make_time_metric
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.shared_params import resolve_device_ids
from spbench_core.catalog.tiles import (
    count_tile_ranks,
    locate_tile,
    read_window,
    resolve_kernel,
    resolve_tiles,
    scale_exchange,
    scale_tiles,
)
from spbench_core.catalog.typed_params import params_of
from spbench_core.catalog.work import (
    Work,
    count_image_values,
    count_iterations,
    item_bytes,
    make_estimate,
)
from spbench_core.layout.tiles import parse_pair
from spbench_workers.benchmarks.halo.params import ComputeParams, ExchangeParams, FusedParams

POSITION = 10
"""Position of the family in lists of benchmarks."""

_TRIALS = 200
"""Exchanges and operators in set-up, which times transports and overlap, and in checks."""


def exchange_work(params: ExchangeParams, np: int) -> Work:
    """Return the work of ``halo.exchange``."""
    image = count_image_values(params, params.in_channels) * item_bytes(params.dtype)
    # Per byte of the image: it is drawn, cut into tiles and compared.
    return Work(
        bytes=60.0 * image,
        messages=8.0 * (count_iterations(params) + _TRIALS),
        memory=image,
    )


def _conv_flops(params: ComputeParams | FusedParams, layers: int) -> float:
    rows, cols = params.kernel
    down, right = params.stride
    outputs = count_image_values(params, params.out_channels) / (down * right)
    return 2.0 * outputs * params.in_channels * rows * cols * layers


def compute_work(params: ComputeParams, np: int) -> Work:
    """Return the work of ``halo.compute``."""
    return _convolution_work(params, 1, np)


def fused_work(params: FusedParams, np: int) -> Work:
    """Return the work of ``halo.fused``."""
    return _convolution_work(params, params.num_layers, np)


def _convolution_work(params: ComputeParams | FusedParams, layers: int, np: int) -> Work:
    flops = _conv_flops(params, layers)
    values = count_image_values(params, params.in_channels)
    values += layers * count_image_values(params, params.out_channels)
    # Four timings: separately, with gathered halos, backward, and with an exchange per layer.
    repeats = 4.0 * count_iterations(params) + 20.0
    return Work(
        flops=flops * repeats,
        # Rank 0 convolves the whole image as often, and checks it in float64.
        single_flops=flops * repeats,
        bytes=200.0 * values * item_bytes(params.dtype),
        messages=8.0 * (repeats + _TRIALS),
        calls=np * (repeats + _TRIALS) * 10.0 * layers,
        memory=values * item_bytes(params.dtype),
    )


_separate_ms = partial(Metric, unit="ms", better="lower", separate=True)
_PACK_MS = _separate_ms(
    "pack_ms",
    help="in a separate exchange: until the pieces of a rank are packed and sent",
    title="exchange pack",
)
_WAIT_MS = _separate_ms(
    "wait_ms",
    help="in a separate exchange: from sending until all pieces have arrived",
    title="exchange wait",
)
_WAITED_MS = Metric(
    "waited_ms",
    "ms",
    "none",
    "part of an iteration in which a rank waits for pieces of others; not on GPUs",
    part_of=TIME_MS.name,
    waits=True,
    title="waiting for pieces",
)
_EXCHANGE_MS = _separate_ms("exchange_ms", help="the exchange without any computation")
_BANDWIDTH = Metric(
    "bandwidth_gb_s",
    "GB/s",
    "higher",
    "bytes that the busiest rank sends, divided by the time of the exchange",
    "min",
)
_busiest_rank = partial(Metric, better="none", fold="max")
_BYTES = _busiest_rank(
    "bytes_sent",
    "B",
    help="bytes that a rank sends in one exchange",
    folded_title="most bytes sent",
)
_MESSAGES = _busiest_rank(
    "messages_sent",
    "1",
    help="messages that a rank sends in one exchange",
    folded_title="most messages sent",
)
_EFFICIENCY = Metric(
    "exchange_efficiency",
    "1",
    "higher",
    "time of a ping-pong and copies of the same data, divided by that of the exchange",
)
_EXCHANGE = (_WAITED_MS, _PACK_MS, _WAIT_MS, _BANDWIDTH, _BYTES, _MESSAGES, _EFFICIENCY)
_SEPARATE_EXCHANGE = (
    *(_WAITED_MS, _PACK_MS, _WAIT_MS, replace(_BANDWIDTH, separate=True)),
    *(_BYTES, _MESSAGES, replace(_EFFICIENCY, separate=True)),
)
"""The same metrics for benchmarks that time the exchange separately from an iteration."""
_HALO_FAULTS = ("corrupt-halo", "drop-halo", "stale-halo")
_OPERATOR_FAULTS = (*_HALO_FAULTS, "drop-gradient")
_OPERATOR_CHECKS = ("halo", "conv", "grad", "adjoint")


def _resolve_exchange(params: Params) -> Params:
    return resolve_tiles(resolve_device_ids(params))


def _resolve_operator(params: Params) -> Params:
    return resolve_kernel(_resolve_exchange(params))


def _resolve_fused(params: Params) -> Params:
    params = _resolve_operator(params)
    layers = params["num_layers"]
    fused = params["fused_layers"] or layers
    if fused > layers:
        raise ParamError("fused_layers", f"fused_layers {fused} is more than num_layers, {layers}")
    size = parse_pair(params["image_size"])
    for layer in range(layers):
        try:
            size = read_window(params).output_size(*size)
        except ValueError as error:
            raise ParamError("num_layers", f"layer {layer + 1}: {error}") from None
    return params | {"fused_layers": fused}


_over_tiles = partial(
    Benchmark,
    checks=_OPERATOR_CHECKS,
    faults=_OPERATOR_FAULTS,
    ranks=count_tile_ranks,
    scaled=scale_tiles,
    place=locate_tile,
)

BENCHMARKS = (
    _over_tiles(
        name="halo.exchange",
        summary="exchange of halos between the tiles of an image",
        params=params_of(ExchangeParams),
        metrics=(make_time_metric("one exchange of all halos", "packing and sending"), *_EXCHANGE),
        checks=("halo",),
        faults=_HALO_FAULTS,
        resolve=_resolve_exchange,
        scaled=scale_exchange,
        work=make_estimate(ExchangeParams, exchange_work),
    ),
    _over_tiles(
        name="halo.compute",
        summary="convolution over tiles: halo exchange and computation, overlapped or not",
        params=params_of(ComputeParams),
        metrics=(
            make_time_metric(
                "one exchange and convolution of a tile, with the calls that combine them",
                "computing and sending",
            ),
            _EXCHANGE_MS,
            _separate_ms(
                "compute_ms",
                help="the convolution without the exchange and the calls that combine them",
            ),
            Metric(
                "overlap",
                "1",
                "higher",
                "share of the exchange that overlapping hides; below 0: overlapping takes longer",
                "min",
                separate=True,
                title="exchange hidden by overlap",
            ),
            *_SEPARATE_EXCHANGE,
            _separate_ms("sequential_ms", help="the whole image on rank 0 while the others sleep"),
            Metric("speedup", "1", "higher", "sequential time divided by the time"),
            _separate_ms("backward_ms", help="all gradients, including those of halos and weights"),
            _separate_ms("gradient_sum_ms", help="sum of the weight gradients over tiles"),
        ),
        resolve=_resolve_operator,
        work=make_estimate(ComputeParams, compute_work),
        starter={"image_size": 256},
    ),
    _over_tiles(
        name="halo.fused",
        summary="several convolutions that share one wide exchange, compared with one each",
        params=params_of(FusedParams),
        metrics=(
            make_time_metric("all layers with a shared exchange", "computing and sending"),
            _WAITED_MS,
            _separate_ms("unfused_ms", help="the same layers with one exchange each"),
            Metric("speedup", "1", "higher", "unfused time divided by the time"),
            Metric(
                "redundant_share",
                "1",
                "none",
                "pixels that are computed twice, divided by those that are needed",
            ),
            _BYTES,
            _MESSAGES,
            Metric(
                "unfused_bytes_sent",
                "B",
                "none",
                "bytes that a rank sends with one exchange per layer",
            ),
            Metric(
                "unfused_messages_sent",
                "1",
                "none",
                "messages that a rank sends with one exchange per layer",
            ),
        ),
        resolve=_resolve_fused,
        work=make_estimate(FusedParams, fused_work),
        starter={"image_size": 256},
    ),
)
