"""A delay of the copy stream, by which a missing wait shows: see `rank_site/sitecustomize.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CYCLES = 2_000_000
"""About a millisecond of a GPU at 2 GHz."""


def delay_copies(streams: Any) -> None:
    """Begin each use of a GPU's copy stream with a kernel that only waits.

    Work that does not wait for the copy stream then reads what was there before, and a check fails.
    """
    import torch

    copying = streams.CudaStreams.copying

    @contextmanager
    def copying_late(self: Any) -> Iterator[None]:
        with copying(self):
            torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]
            yield

    streams.CudaStreams.copying = copying_late
    sys.stderr.write("gpu_once: the copy stream of GPUs is delayed\n")
