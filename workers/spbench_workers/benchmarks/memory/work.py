"""The estimate of the work of memory copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench_core.catalog.work import Work, count_iterations

if TYPE_CHECKING:
    from spbench_workers.benchmarks.memory.entry import CopyParams


def copy_work(params: CopyParams, np: int) -> Work:
    """Return the work of ``memory.copy``."""
    size = float(params.size) * np
    # A copy reads and writes; the buffer is filled and compared.
    return Work(bytes=size * (2.0 * count_iterations(params) + 20.0), memory=2.0 * size)
