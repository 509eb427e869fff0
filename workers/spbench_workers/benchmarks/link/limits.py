"""The limit of a message: a copy of it within the memory of one rank."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from statistics import median

from spbench_workers.timing import time_batch

_COPIES = 20


def time_copies(copies: Callable[[], object], count: int) -> float:
    """Return the seconds of one copy, the median of several samples.

    Args:
        copies: Copies a message ``count`` times, and returns when all are done.
        count: Copies of a sample.
    """
    times = array("d", bytes(8 * _COPIES))
    time_batch(copies, times, 0, _COPIES, 1.0 / count)
    return median(times)
