"""The estimate of the work of a collective."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spbench_core.catalog.work import Work, count_iterations

if TYPE_CHECKING:
    from spbench_workers.benchmarks.allreduce.entry import SweepParams

_CHECKED = 60
"""Iterations' worth of set-up and checks of a collective: links are fitted, results compared."""


def collective_work(params: SweepParams, np: int) -> Work:
    """Return the work of ``allreduce.sweep``: the algorithm, the MPI's own, and their checks."""
    size = float(params.size or 0)
    repeats = 2.0 * count_iterations(params) + _CHECKED
    steps = max(1.0, math.log2(max(2, np)))
    return Work(
        bytes=4.0 * np * size * repeats,
        messages=4.0 * steps * repeats,
        calls=1000.0 * np,
        seconds=0.05,
        memory=3.0 * np * size,
    )
