"""What a rank spends a step's time on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import torch

from spbench_workers.spatial.spent import SPENT

PHASES = ("forward", "backward", "exchange", "wait", "join", "allreduce", "optimizer")
"""Work of the stages, what goes among the tiles of one, waits for other stages, what goes between
them, sums of gradients, and the update."""
_WORK = frozenset({"forward", "backward"})
"""Phases in which tiles exchange halos and sums."""


class Phases:
    """Seconds of each of `PHASES`, and of all steps.

    Args:
        device: Whose work, of the current stream, is waited for before a clock is read.

    Attributes:
        seconds: By phase.
        total: Of the steps.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.total = 0.0

    @property
    def idle(self) -> float:
        """Seconds of the steps that belong to no phase."""
        return self.total - sum(self.seconds.values())

    @contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Count the time of what is done inside to a phase; of work, the exchange by itself."""
        start, spent = perf_counter(), SPENT.seconds
        yield
        _finish(self._device)
        elapsed = perf_counter() - start
        exchange = SPENT.seconds - spent if phase in _WORK else 0.0
        self.seconds[phase] += elapsed - exchange
        self.seconds["exchange"] += exchange

    @contextmanager
    def step(self) -> Iterator[None]:
        """Count the time of what is done inside to the steps."""
        start = perf_counter()
        yield
        _finish(self._device)
        self.total += perf_counter() - start


def _finish(device: torch.device) -> None:
    """Wait for the current stream alone: NCCL's have receives posted ahead, from busy ranks."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
