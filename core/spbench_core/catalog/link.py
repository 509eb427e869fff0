"""Catalog of the links between ranks."""

from __future__ import annotations

from dataclasses import replace

from spbench_core.catalog.benchmark import TIME_MS, Benchmark, Metric, ParamError, Ranks
from spbench_core.catalog.parameters import Param, Params
from spbench_core.catalog.shared_params import DEVICE, SEED, iterations, warmup

_SIZES = {
    "cpu": [8, 1 << 10, 64 << 10, 1 << 20, 4 << 20],
    # Links between GPUs are not filled by less.
    "cuda": [8, 1 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20],
}
"""Message sizes by device, unless given."""


def _resolve(params: Params) -> Params:
    device, path = params["device"], params["path"]
    sizes = _SIZES[device] if params["sizes"] is None else params["sizes"]
    if sorted(set(sizes)) != sizes:
        raise ParamError("sizes", "sizes must rise from the smallest to the largest")
    if device == "cpu" and path is not None:
        raise ParamError("path", "path does nothing on the host: it is for device cuda")
    if device == "cuda":
        path = path or "auto"
    return params | {"sizes": sizes, "path": path}


BENCHMARKS = (
    Benchmark(
        name="link.pingpong",
        summary="latency and bandwidth between pairs of ranks, over message sizes",
        measures="link",
        params=(
            Param(
                "pairs",
                "choice",
                "all",
                "all pairs of ranks, or each rank with the next one",
                choices=("all", "neighbours"),
            ),
            Param(
                "sizes",
                "bytes_list",
                None,
                "message sizes, rising; 8 B to 4 MiB, with device cuda to 64 MiB",
                minimum=1,
                maximum=1 << 30,
            ),
            replace(
                DEVICE,
                default="cpu",
                help="whose memory messages leave and come to: the host's, or a GPU's",
                choices=("cpu", "cuda"),
            ),
            Param(
                "path",
                "choice",
                None,
                "how messages go between GPUs: through pinned memory of the host, by an MPI that "
                "takes pointers to memory of a GPU, or by NCCL; auto: pointers, where MPI says so",
                choices=("auto", "pinned", "pointers", "nccl"),
            ),
            warmup(5),
            iterations(50),
            SEED,
        ),
        metrics=(
            TIME_MS,
            Metric("latency_us", "us", "lower", "one way, smallest message, slowest pair"),
            Metric("bandwidth_gb_s", "GB/s", "higher", "largest message, slowest pair", "min"),
        ),
        checks=("echo",),
        faults=("corrupt-message",),
        resolve=_resolve,
        ranks=lambda _: Ranks(minimum=2),
    ),
)
