"""Catalog of the benchmarks of memory bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.catalog import shared_params
from spbench_core.catalog.benchmark import Benchmark, Metric, ParamError, make_time_metric
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.scaling import keep_params_weak_only
from spbench_core.catalog.shared_params import DEVICE, SEED
from spbench_core.catalog.typed_params import parameter, params_of, reuse_parameter
from spbench_core.catalog.work import Work, count_iterations, make_estimate

POSITION = 30
"""Position of the family in lists of benchmarks."""


def copy_work(params: CopyParams, np: int) -> Work:
    """Return the work of ``memory.copy``."""
    size = float(params.size) * np
    # A copy reads and writes; the buffer is filled and compared.
    return Work(bytes=size * (2.0 * count_iterations(params) + 20.0), memory=2.0 * size)


def _resolve(params: Params) -> Params:
    """Fill in ``pinned``.

    Raises:
        ParamError: A parameter has no effect on this path, or needs a GPU.
    """
    path = params["path"]
    crosses = params["path"] in ("to_device", "to_host")
    if params["device"] == "cpu" and path != "device":
        raise ParamError("path", f"path {path} needs a GPU, and device is cpu; take path device")
    if params["device"] == "cpu" and params["cores"] != "all":
        raise ParamError(
            "cores", f"cores {params['cores']} are those of a GPU, and device is cpu; take all"
        )
    if params["pinned"] and not crosses:
        raise ParamError(
            "pinned", f"path {path} has no side on the host; take path to_device or to_host"
        )
    return params | {"pinned": crosses if params["pinned"] is None else params["pinned"]}


@dataclass(frozen=True, kw_only=True)
class CopyParams:
    """Parameters of ``memory.copy``."""

    size: int = parameter("bytes", 64 << 20, "bytes of one copy", minimum=8, maximum=16 << 30)
    path: str = parameter(
        "choice",
        "device",
        "path of the copy: within the memory of the device, from the host to a GPU, back, or "
        "between two GPUs of a host",
        choices=("device", "to_device", "to_host", "peer"),
    )
    pinned: bool = parameter(
        "bool",
        None,
        "whether the memory of the host is pinned; default: on for to_device and to_host",
    )
    cores: str = parameter(
        "choice",
        "all",
        "cores that make the copy: all of the rank, or those near its GPU or far from it",
        choices=("all", "near", "far"),
    )
    warmup: int = reuse_parameter(shared_params.warmup(3))
    iterations: int = reuse_parameter(shared_params.iterations(30))
    device: str = reuse_parameter(DEVICE)
    seed: int = reuse_parameter(SEED)


BENCHMARKS = (
    Benchmark(
        name="memory.copy",
        summary=(
            "each rank copies a buffer within its memory, or to or from a GPU, all at the same time"
        ),
        measures="rank",
        params=params_of(CopyParams),
        metrics=(
            make_time_metric("one copy"),
            Metric(
                "bandwidth_gb_s",
                "GB/s",
                "higher",
                "bytes that a rank copies divided by the time",
                "min",
            ),
        ),
        checks=("copy",),
        faults=("corrupt-copy",),
        resolve=_resolve,
        scaled=keep_params_weak_only,
        work=make_estimate(CopyParams, copy_work),
    ),
)
