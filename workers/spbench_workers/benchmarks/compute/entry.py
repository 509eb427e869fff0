"""Catalog of compute benchmarks: products, convolutions, a burn-in and noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from spbench_core.catalog import shared_params
from spbench_core.catalog.benchmark import Benchmark, Metric, ParamError, make_time_metric
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.scaling import keep_params_weak_only
from spbench_core.catalog.shared_params import DEVICE, DTYPE, DTYPES, SEED
from spbench_core.catalog.typed_params import parameter, params_of, reuse_parameter
from spbench_core.catalog.work import (
    Work,
    count_image_values,
    count_iterations,
    item_bytes,
    make_estimate,
)

POSITION = 40
"""Position of the family in lists of benchmarks."""


def gemm_work(params: GemmParams, np: int) -> Work:
    """Return the work of ``compute.gemm``, with a check in float64."""
    n = float(params.n)
    flops = 2.0 * n**3
    return Work(
        flops=np * flops * (count_iterations(params) + 4.0),
        bytes=40.0 * np * n**2 * item_bytes(params.dtype),
        calls=np * count_iterations(params),
        memory=3.0 * np * n**2 * item_bytes(params.dtype),
    )


def conv_work(params: ConvParams, np: int) -> Work:
    """Return the work of ``compute.conv``, with a check in float64."""
    outputs = count_image_values(params, params.out_channels)
    values = count_image_values(params, params.in_channels) + outputs
    flops = 2.0 * outputs * params.in_channels * params.kernel**2
    return Work(
        flops=np * flops * (count_iterations(params) + 4.0),
        bytes=20.0 * np * values * item_bytes(params.dtype),
        calls=np * count_iterations(params),
        memory=np * values * item_bytes(params.dtype),
    )


def burn_work(params: BurnParams, np: int) -> Work:
    """Return the work of ``compute.burn``: its time, and a last round with its check."""
    n = float(params.n)
    return Work(
        flops=np * 2.0 * n**3 * (count_iterations(params) + 4.0),
        seconds=params.seconds,
        memory=3.0 * np * n**2 * item_bytes(params.dtype),
    )


def noise_work(params: NoiseParams, np: int) -> Work:
    """Return the work of ``compute.noise``; ranks that share a core take turns."""
    quantum = params.quantum_us * 1e-6
    return Work(seconds=quantum * (count_iterations(params) + 500.0))


_RATE = Metric(
    "gflops",
    "GFLOP/s",
    "higher",
    "operations of a rank divided by the time",
    "min",
)


def _resolve_format(params: Params) -> Params:
    """Check that the device has the number format.

    Raises:
        ParamError: tf32 is requested on the CPU.
    """
    if params["dtype"] == "tf32" and params["device"] == "cpu":
        raise ParamError("dtype", "tf32 needs a GPU, and device is cpu; take fp32, or device cuda")
    return params


_DTYPE = replace(
    DTYPE,
    help=(
        "number format of the data; tf32 (only on GPUs) is fp32 in memory, multiplied with 11 bits"
    ),
    choices=(*DTYPES, "tf32"),
)


@dataclass(frozen=True, kw_only=True)
class GemmParams:
    """Parameters of ``compute.gemm``."""

    n: int = parameter("int", 512, "rows and columns of the matrices", minimum=1, maximum=65536)
    warmup: int = reuse_parameter(shared_params.warmup(3))
    iterations: int = reuse_parameter(shared_params.iterations(30))
    dtype: str = reuse_parameter(_DTYPE)
    device: str = reuse_parameter(DEVICE)
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class ConvParams:
    """Parameters of ``compute.conv``."""

    image_size: tuple[int, int] = parameter("pair", 128, "size of an image in pixels, N or HxW")
    batch_size: int = parameter("int", 1, "images per batch", minimum=1)
    in_channels: int = parameter("int", 32, "channels of the image", minimum=1)
    out_channels: int = parameter("int", 32, "channels of the result", minimum=1)
    kernel: int = parameter("int", 3, "rows and columns of the kernel", minimum=1, maximum=63)
    warmup: int = reuse_parameter(shared_params.warmup(3))
    iterations: int = reuse_parameter(shared_params.iterations(30))
    dtype: str = reuse_parameter(_DTYPE)
    device: str = reuse_parameter(DEVICE)
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class BurnParams:
    """Parameters of ``compute.burn``."""

    seconds: float = parameter(
        "float",
        60.0,
        "duration; the last round is completed",
        minimum=0.0,
        maximum=604_800.0,
    )
    n: int = parameter("int", 2048, "rows and columns of the matrices", minimum=1, maximum=65536)
    warmup: int = reuse_parameter(shared_params.warmup(1))
    iterations: int = reuse_parameter(
        shared_params.iterations(20),
        help="timed products per round; one product is checked after each round",
    )
    dtype: str = reuse_parameter(_DTYPE)
    device: str = reuse_parameter(DEVICE)
    seed: int = reuse_parameter(SEED)


@dataclass(frozen=True, kw_only=True)
class NoiseParams:
    """Parameters of ``compute.noise``."""

    quantum_us: float = parameter(
        "float",
        1000.0,
        "duration of the work on rank 0, in microseconds",
        minimum=10.0,
        maximum=1e6,
    )
    warmup: int = reuse_parameter(shared_params.warmup(50))
    iterations: int = reuse_parameter(shared_params.iterations(5000))
    seed: int = reuse_parameter(SEED)


_rank_benchmark = partial(
    Benchmark,
    measures="rank",
    faults=("corrupt-result",),
    resolve=_resolve_format,
    scaled=keep_params_weak_only,
)

BENCHMARKS = (
    _rank_benchmark(
        name="compute.gemm",
        summary="each rank multiplies two square matrices, all at the same time",
        params=params_of(GemmParams),
        metrics=(make_time_metric("one product of the matrices"), _RATE),
        checks=("product",),
        work=make_estimate(GemmParams, gemm_work),
    ),
    _rank_benchmark(
        name="compute.conv",
        summary="each rank convolves its own images, all at the same time",
        params=params_of(ConvParams),
        metrics=(make_time_metric("one convolution"), _RATE),
        checks=("convolution",),
        work=make_estimate(ConvParams, conv_work),
    ),
    Benchmark(
        name="compute.burn",
        summary="each rank multiplies matrices for some time, with a check in each round",
        measures="rank",
        params=params_of(BurnParams),
        metrics=(
            make_time_metric("one product of the matrices"),
            _RATE,
            Metric(
                "kept_share",
                "1",
                "higher",
                "speed of the last round divided by that of the first",
                "min",
            ),
            Metric(
                "below_base",
                "1",
                "lower",
                "largest share by which a CPU ran below its base clock rate",
            ),
            Metric(
                "throttled",
                "1",
                "lower",
                "number of times that a CPU was throttled because of its temperature",
            ),
            Metric("rounds", "1", "none", "number of rounds", "min"),
        ),
        checks=("product",),
        faults=("corrupt-result",),
        resolve=_resolve_format,
        scaled=keep_params_weak_only,
        work=make_estimate(BurnParams, burn_work),
        starter={"seconds": 3, "n": 1024},
    ),
    Benchmark(
        name="compute.noise",
        summary="each rank repeats the same small work, which shows interruptions",
        measures="rank",
        params=params_of(NoiseParams),
        metrics=(
            make_time_metric("one repetition of the work"),
            Metric(
                "lost_share",
                "1",
                "lower",
                "share of the time beyond that of the fastest repetition",
            ),
            Metric(
                "slowest_ratio",
                "1",
                "lower",
                "99.9th percentile divided by the fastest repetition",
                title="p99.9 over fastest",
            ),
        ),
        checks=("work",),
        faults=("corrupt-result",),
        scaled=keep_params_weak_only,
        work=make_estimate(NoiseParams, noise_work),
    ),
)
