"""Catalog of the links between ranks."""

from __future__ import annotations

from spbench_workers.catalog.benchmark import TIME_MS, Benchmark, Metric, ParamError, Ranks
from spbench_workers.catalog.parameters import Param, Params
from spbench_workers.catalog.shared_params import SEED, iterations, warmup


def _resolve(params: Params) -> Params:
    sizes = params["sizes"]
    if sorted(set(sizes)) != sizes:
        raise ParamError("sizes", "sizes must rise from the smallest to the largest")
    return params


BENCHMARKS = (
    Benchmark(
        name="link.pingpong",
        summary="latency and bandwidth between pairs of ranks, over message sizes",
        module="spbench_workers.link.pingpong",
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
                [8, 1 << 10, 64 << 10, 1 << 20, 4 << 20],
                "message sizes, rising",
                minimum=1,
                maximum=1 << 30,
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
