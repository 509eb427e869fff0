"""Catalog of the links between ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

from spbench_core.catalog import shared_params
from spbench_core.catalog.benchmark import Benchmark, Metric, ParamError, Ranks, make_time_metric
from spbench_core.catalog.parameters import Param, Params
from spbench_core.catalog.scaling import keep_params_weak_only
from spbench_core.catalog.shared_params import DEVICE, SEED
from spbench_core.catalog.typed_params import parameter, params_of, reuse_parameter
from spbench_core.catalog.work import TimedLoop, Work, count_iterations, make_estimate

POSITION = 20
"""Position of the family in lists of benchmarks."""


def pingpong_work(params: PingpongParams, np: int) -> Work:
    """Return the work of ``link.pingpong``: pairs one after another, or in rounds."""
    pairs = np - 1 if params.pairs == "neighbours" else np * (np - 1) // 2
    at_once = params.at_once or (1 if pairs <= 28 else np // 2)
    rounds = math.ceil(pairs / max(1, at_once))
    repeats = count_iterations(params) + 2.0
    sizes = params.sizes
    return Work(
        bytes=2.0 * pairs * repeats * sum(sizes),
        messages=2.0 * rounds * repeats * len(sizes),
        memory=2.0 * np * max(sizes),
    )


def _all_ranks_work(patterns: int, sizes: list[int], params: TimedLoop, np: int) -> Work:
    repeats = count_iterations(params) + 2.0
    return Work(
        bytes=2.0 * np * patterns * repeats * sum(sizes),
        messages=2.0 * patterns * repeats * len(sizes),
        memory=2.0 * np * max(sizes),
    )


def rings_work(params: RingParams | EffectiveParams, np: int) -> Work:
    """Return the work of ``link.ring`` and ``link.effective``."""
    return _all_ranks_work(1 + params.rings, params.sizes, params, np)


def bisection_work(params: BisectionParams, np: int) -> Work:
    """Return the work of ``link.bisection``."""
    return _all_ranks_work(1 + params.cuts, [params.size], params, np)


def barrier_work(params: LoopParams, np: int) -> Work:
    """Return the work of ``link.barrier``; its check leaves ranks waiting."""
    return Work(
        messages=2.0 * count_iterations(params) * math.ceil(math.log2(max(2, np))), seconds=0.1
    )


_SIZES = {
    "cpu": [8, 1 << 10, 64 << 10, 1 << 20, 4 << 20],
    # Smaller messages do not fill the links between GPUs.
    "cuda": [8, 1 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20],
}
"""Default message sizes by device."""


def _check_rising(sizes: list[int]) -> None:
    """Check that sizes rise.

    Raises:
        ParamError: A size is not larger than the one before it.
    """
    if sorted(set(sizes)) != sizes:
        raise ParamError("sizes", "sizes must rise from the smallest to the largest")


def _resolve_sizes(params: Params) -> Params:
    _check_rising(params["sizes"])
    return params


def _resolve(params: Params) -> Params:
    device = params["device"]
    path = params["path"]
    sizes = _SIZES[device] if params["sizes"] is None else params["sizes"]
    _check_rising(sizes)
    if device == "cpu" and path is not None:
        raise ParamError("path", "path does nothing on the host: it is for device cuda")
    if device == "cuda":
        path = path or "auto"
    return params | {"sizes": sizes, "path": path}


def _sizes(default: list[int]) -> Param:
    return Param(
        "sizes",
        "bytes_list",
        default,
        "message sizes in ascending order",
        minimum=1,
        maximum=1 << 30,
    )


def _random_orders(name: str, default: int, minimum: int) -> Param:
    help_text = (
        f"number of random {name}, in addition to the {name.removesuffix('s')} in rank order"
    )
    return Param(name, "int", default, help_text, minimum=minimum, maximum=1000)


@dataclass(frozen=True, kw_only=True)
class LoopParams:
    """Parameters of the timed loop of all benchmarks of this family."""

    warmup: int = reuse_parameter(shared_params.warmup(5))
    iterations: int = reuse_parameter(shared_params.iterations(50))


@dataclass(frozen=True, kw_only=True)
class PingpongParams:
    """Parameters of ``link.pingpong``."""

    pairs: Literal["all", "neighbours"] = parameter(
        "choice",
        "all",
        "all pairs of ranks, or each rank with the next one",
        choices=("all", "neighbours"),
    )
    at_once: int | None = parameter(
        "int",
        None,
        "limit of pairs measured at the same time; default: 1 for up to 28 pairs, otherwise "
        "half the number of ranks",
        minimum=1,
    )
    sizes: list[int] = parameter(
        "bytes_list",
        None,
        "message sizes in ascending order; default: 8 B to 4 MiB, up to 64 MiB on device cuda",
        minimum=1,
        maximum=1 << 30,
    )
    device: str = reuse_parameter(
        DEVICE,
        default="cpu",
        help="memory of the messages: that of the host, or of a GPU",
        choices=("cpu", "cuda"),
    )
    path: str | None = parameter(
        "choice",
        None,
        "path of messages between GPUs: pinned memory of the host, an MPI that accepts "
        "pointers to GPU memory, CUDA IPC within a host, or NCCL; auto uses pointers if the "
        "MPI supports them",
        choices=("auto", "pinned", "pointers", "cuda-ipc", "nccl"),
    )
    warmup: int = reuse_parameter(shared_params.warmup(5))
    iterations: int = reuse_parameter(shared_params.iterations(50))
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class RingParams:
    """Parameters of ``link.ring``."""

    sizes: list[int] = reuse_parameter(_sizes([8, 1 << 20]))
    rings: int = reuse_parameter(_random_orders("rings", 3, 0))
    warmup: int = reuse_parameter(shared_params.warmup(5))
    iterations: int = reuse_parameter(shared_params.iterations(50))
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class BisectionParams:
    """Parameters of ``link.bisection``."""

    size: int = parameter("bytes", 1 << 20, "bytes of a message", minimum=1, maximum=1 << 30)
    cuts: int = reuse_parameter(_random_orders("cuts", 3, 0))
    warmup: int = reuse_parameter(shared_params.warmup(5))
    iterations: int = reuse_parameter(shared_params.iterations(50))
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class EffectiveParams:
    """Parameters of ``link.effective``."""

    sizes: list[int] = reuse_parameter(_sizes([8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20]))
    rings: int = reuse_parameter(_random_orders("rings", 3, 1))
    warmup: int = reuse_parameter(shared_params.warmup(5))
    iterations: int = reuse_parameter(shared_params.iterations(50))
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class BarrierParams:
    """Parameters of ``link.barrier``."""

    warmup: int = reuse_parameter(shared_params.warmup(20))
    iterations: int = reuse_parameter(shared_params.iterations(200))
    seed: int = reuse_parameter(SEED)


_of_all = partial(
    Benchmark,
    checks=("message",),
    faults=("corrupt-message",),
    ranks=lambda _: Ranks(minimum=2),
    scaled=keep_params_weak_only,
)

BENCHMARKS = (
    Benchmark(
        name="link.pingpong",
        imports_torch=False,
        summary="latency and bandwidth between pairs of ranks, over message sizes",
        measures="link",
        params=params_of(PingpongParams),
        metrics=(
            make_time_metric("one round trip of the largest message"),
            Metric(
                "latency_us",
                "us",
                "lower",
                "time of one way of the smallest message, of the slowest pair",
            ),
            Metric(
                "bandwidth_gb_s",
                "GB/s",
                "higher",
                "bytes of the largest message divided by half the round trip, of the slowest pair",
                "min",
            ),
        ),
        checks=("echo",),
        faults=("corrupt-message",),
        work=make_estimate(PingpongParams, pingpong_work),
        resolve=_resolve,
        ranks=lambda _: Ranks(minimum=2),
    ),
    _of_all(
        name="link.ring",
        imports_torch=False,
        summary="each rank sends to both neighbours of a ring, in order and in random rings",
        params=params_of(RingParams),
        metrics=(
            make_time_metric(
                "one exchange of the largest message with both neighbours, in the ring in "
                "rank order"
            ),
            Metric(
                "latency_us",
                "us",
                "lower",
                "time of an exchange of the smallest messages, in the ring in rank order",
            ),
            Metric(
                "bandwidth_gb_s",
                "GB/s",
                "higher",
                "bytes that a rank sends to both neighbours divided by the time, in the ring "
                "in rank order",
                "min",
            ),
            Metric(
                "random_latency_us",
                "us",
                "lower",
                "time of an exchange of the smallest messages, mean over random rings",
            ),
            Metric(
                "random_bandwidth_gb_s",
                "GB/s",
                "higher",
                "bytes that a rank sends divided by the time, in random rings",
                "min",
            ),
        ),
        resolve=_resolve_sizes,
        work=make_estimate(RingParams, rings_work),
    ),
    _of_all(
        name="link.bisection",
        imports_torch=False,
        summary="ranks of one half exchange messages with ranks of the other half, all together",
        params=params_of(BisectionParams),
        metrics=(
            make_time_metric(
                "one exchange of a message in each pair, in both directions, with halves in rank "
                "order"
            ),
            Metric(
                "bandwidth_gb_s",
                "GB/s",
                "higher",
                "bytes of all pairs in both directions divided by the time, with halves in "
                "rank order",
                "min",
            ),
            Metric(
                "worst_bandwidth_gb_s", "GB/s", "higher", "the lowest bandwidth of all cuts", "min"
            ),
        ),
        work=make_estimate(BisectionParams, bisection_work),
    ),
    _of_all(
        name="link.effective",
        imports_torch=False,
        summary="bandwidth of all ranks in rings, mean over message sizes and patterns",
        params=params_of(EffectiveParams),
        metrics=(
            make_time_metric(
                "one exchange of the largest message with both neighbours, in the ring in "
                "rank order"
            ),
            Metric(
                "effective_gb_s",
                "GB/s",
                "higher",
                "bytes that all ranks send divided by the time, mean over sizes and rings",
                "min",
            ),
            Metric("per_rank_gb_s", "GB/s", "higher", "the same per rank", "min"),
        ),
        resolve=_resolve_sizes,
        work=make_estimate(EffectiveParams, rings_work),
    ),
    Benchmark(
        name="link.barrier",
        imports_torch=False,
        summary="time of a barrier over all ranks",
        params=params_of(BarrierParams),
        metrics=(
            make_time_metric("one barrier"),
            Metric("latency_us", "us", "lower", "time of one barrier on the slowest rank"),
        ),
        checks=("all-came",),
        faults=("leave-early",),
        work=make_estimate(LoopParams, barrier_work),
        ranks=lambda _: Ranks(minimum=2),
        scaled=keep_params_weak_only,
    ),
)
