"""What a rank spends a step's time on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import torch

from spbench_workers.device import synchronize

PHASES = ("forward", "backward", "wait", "join", "allreduce", "optimizer")
"""Work of the stages, waits for other stages, what goes between them, sums, and the update."""


class Phases:
    """Seconds of each of `PHASES`, and of all steps.

    Args:
        device: Whose work is waited for before a clock is read.

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
        """Count the time of what is done inside to a phase."""
        start = perf_counter()
        yield
        synchronize(self._device)
        self.seconds[phase] += perf_counter() - start

    @contextmanager
    def step(self) -> Iterator[None]:
        """Count the time of what is done inside to the steps."""
        start = perf_counter()
        yield
        synchronize(self._device)
        self.total += perf_counter() - start
