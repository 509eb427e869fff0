"""The catalog: every benchmark's name, parameters, rank count, metrics and faults.

A new benchmark is one worker module and one entry here.
"""

from __future__ import annotations

from spbench_core.catalog import (
    allreduce,
    compute,
    halo,
    kvstore,
    link,
    memory,
    model_profile,
    models,
)
from spbench_core.catalog.benchmark import Benchmark

COMMON_FAULTS = {
    "hang": "the last rank sleeps for ever",
    "kill": "the last rank kills itself with SIGKILL",
    "stop": "the last rank stops itself with SIGSTOP",
    "raise": "the last rank raises an exception",
    "exit": "the last rank calls sys.exit(3)",
    "slow": "each iteration of the last rank takes five times as long, and 2 ms more at least",
}
"""The faults that ``--inject`` can plant in every benchmark, each with its effect."""

BENCHMARKS: dict[str, Benchmark] = {
    entry.name: entry
    for family in (halo, link, memory, compute, allreduce, kvstore, models, model_profile)
    for entry in family.BENCHMARKS
}
