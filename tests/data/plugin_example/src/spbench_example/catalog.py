"""Catalog of the plug-in: one benchmark."""

from __future__ import annotations

from spbench_core.catalog.benchmark import TIME_MS, Benchmark, Ranks
from spbench_core.catalog.parameters import Param
from spbench_core.catalog.shared_params import SEED, iterations, warmup

SPBENCH_PLUGIN_API = 1

BENCHMARKS = (
    Benchmark(
        name="example.sum",
        summary="all ranks add up their numbers",
        params=(
            Param("count", "int", 1000, "numbers of each rank", minimum=1, maximum=10**6),
            iterations(20),
            warmup(2),
            SEED,
        ),
        metrics=(TIME_MS,),
        checks=("sum",),
        faults=("corrupt-sum",),
        ranks=lambda params: Ranks(minimum=2),
        worker="spbench_example.sum_numbers",
    ),
)
