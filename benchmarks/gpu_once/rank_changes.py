"""Changes of the workers' modules in ranks: see `rank_site/sitecustomize.py`.

Each prints a line by which the command knows that it reached the ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DELAYED_LINE = "gpu_once: the copy stream of GPUs is delayed"
SANITIZER_LINE = "gpu_once: torch's stream sanitizer is on"
CYCLES = 2_000_000
"""About a millisecond of a GPU at 2 GHz."""


def delay_copies(streams: Any) -> None:
    """Begin each use of a GPU's copy stream with a kernel that only waits.

    Work that does not wait for the copy stream then reads what was there before, and a check fails.
    """
    import torch

    copying = streams.CudaStreams.use_copy_stream

    @contextmanager
    def copying_late(self: Any) -> Iterator[None]:
        with copying(self):
            torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]
            yield

    streams.CudaStreams.use_copy_stream = copying_late
    sys.stderr.write(f"{DELAYED_LINE}\n")


def show_sanitizer(streams: Any) -> None:
    """Print whether torch's stream sanitizer is on, as `TORCH_CUDA_SANITIZER` asks for."""
    from torch.cuda import _sanitizer

    if _sanitizer.cuda_sanitizer.enabled:
        sys.stderr.write(f"{SANITIZER_LINE}\n")
