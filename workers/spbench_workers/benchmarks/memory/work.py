"""The estimate of the work of memory copies."""

from __future__ import annotations

from spbench_core.catalog.parameters import Params
from spbench_core.catalog.work import Work, loops


def copy_work(params: Params, np: int) -> Work:
    """Return the work of ``memory.copy``."""
    size = float(params["size"]) * np
    # A copy reads and writes; the buffer is filled and compared.
    return Work(bytes=size * (2.0 * loops(params) + 20.0), memory=2.0 * size)
