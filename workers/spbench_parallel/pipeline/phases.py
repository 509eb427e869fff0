"""Phases of a step, and the time that a rank spends in each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import torch

from spbench_parallel.device.streams import StreamTimes, is_gpu
from spbench_parallel.spatial.comm_stats import COMM_STATS

PHASES = ("forward", "backward", "exchange", "wait", "join", "allreduce", "optimizer")
"""Passes of the stages, exchanges among tiles, waits for other stages, copies of messages to and
from them, sums of gradients, and the optimizer's update.
"""
_WORK = frozenset({"forward", "backward"})
"""Phases in which tiles exchange halos and sums."""
_IDLE = "idle"


class Phases:
    """Seconds of each phase and of all steps, by the clock of the host.

    Attributes:
        seconds: The seconds of each phase.
        total: The seconds of all steps.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.total = 0.0

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Count the time inside as a phase.

        Exchanges within a pass count as their own phase.
        """
        start_seconds = perf_counter()
        exchange_seconds_before = COMM_STATS.seconds
        yield
        elapsed_seconds = perf_counter() - start_seconds
        exchange_seconds = COMM_STATS.seconds - exchange_seconds_before if phase in _WORK else 0.0
        self.seconds[phase] += elapsed_seconds - exchange_seconds
        self.seconds["exchange"] += exchange_seconds

    @contextmanager
    def measure_step(self) -> Iterator[None]:
        """Count the time inside as time of steps."""
        start_seconds = perf_counter()
        yield
        self.total += perf_counter() - start_seconds


class StreamPhases(Phases):
    """Seconds of each phase of a GPU's work, by events on its current stream.

    A phase begins when the stream has done all earlier work, and ends when it has done the work of
    the phase. So work never counts as that of another phase that waits for it. While the host waits
    for other ranks, the stream also waits as soon as it has no work left. Only at the end of a step
    does the host wait for the stream, and then reads the times. Time outside of steps is not
    counted.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._times = StreamTimes(device)
        self._phase = _IDLE

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Count the time inside as a phase.

        Exchanges within a pass count as their own phase.
        """
        outer_phase = self._phase
        self._enter(phase)
        yield
        self._enter(outer_phase)

    @contextmanager
    def measure_step(self) -> Iterator[None]:
        """Count the time inside as time of steps."""
        self._phase = _IDLE
        with COMM_STATS.use_timer(self._exchange):
            self._times.begin(_IDLE)
            yield
            for phase, seconds in self._times.read():
                self.total += seconds
                if phase != _IDLE:
                    self.seconds[phase] += seconds

    def _enter(self, phase: str) -> None:
        self._times.switch(phase)
        self._phase = phase

    @contextmanager
    def _exchange(self) -> Iterator[None]:
        """Count an exchange among tiles as its own phase, except within sums of gradients."""
        if self._phase not in _WORK:
            yield
            return
        with self.measure("exchange"):
            yield


def create_phases(device: torch.device) -> Phases:
    """Return the phase counter of a device: by events on a GPU, or by host clock."""
    return StreamPhases(device) if is_gpu(device) else Phases()
