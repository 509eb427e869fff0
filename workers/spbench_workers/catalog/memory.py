"""Catalog of memory speed."""

from __future__ import annotations

from spbench_workers.catalog.benchmark import TIME_MS, Benchmark, Metric
from spbench_workers.catalog.parameters import Param
from spbench_workers.catalog.shared_params import DEVICE, SEED, iterations, warmup

BENCHMARKS = (
    Benchmark(
        name="memory.copy",
        summary="each rank copies a buffer within its own memory, all at once",
        module="spbench_workers.memory.copy",
        measures="rank",
        params=(
            Param("size", "bytes", 64 << 20, "bytes of one copy", minimum=8, maximum=16 << 30),
            warmup(3),
            iterations(30),
            DEVICE,
            SEED,
        ),
        metrics=(
            TIME_MS,
            Metric("bandwidth_gb_s", "GB/s", "higher", "bytes copied over time", "min"),
        ),
        checks=("copy",),
        faults=("corrupt-copy",),
    ),
)
