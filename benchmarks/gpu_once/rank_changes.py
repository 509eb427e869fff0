"""Changes of the workers' modules in ranks: see `rank_site/sitecustomize.py`.

Each prints a line, which shows the command that the change reached the ranks.
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
    """Start each use of a GPU's copy stream with a kernel that only waits.

    Work that does not wait for the copy stream then reads old data, and a check fails.
    """
    import torch

    use_copy_stream = streams.CudaStreams.use_copy_stream

    @contextmanager
    def use_delayed_stream(self: Any) -> Iterator[None]:
        with use_copy_stream(self):
            torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]
            yield

    streams.CudaStreams.use_copy_stream = use_delayed_stream
    sys.stderr.write(f"{DELAYED_LINE}\n")


def show_sanitizer(streams: Any) -> None:
    """Print whether torch's stream sanitizer is on (``TORCH_CUDA_SANITIZER``)."""
    from torch.cuda import _sanitizer

    if _sanitizer.cuda_sanitizer.enabled:
        sys.stderr.write(f"{SANITIZER_LINE}\n")
