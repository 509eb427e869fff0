"""Phases of a step, and the time that a rank spends in each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import torch

from spbench_parallel.device.stream_times import StreamTimes
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.spatial.comm_stats import COMM_STATS

PHASES = ("forward", "backward", "exchange", "wait", "join", "allreduce", "optimizer")
"""Passes of the stages, exchanges among tiles, waits for other stages, copies of messages to and
from them, sums of gradients, and the optimizer's update."""
_WORK = frozenset({"forward", "backward"})
"""Phases in which tiles exchange halos and sums."""
_IDLE = "idle"


class Phases:
    """Seconds of each of `PHASES`, and of all steps, by the clock of the host that does the work.

    Attributes:
        seconds: The seconds of each phase.
        total: The seconds of all steps.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.total = 0.0

    @contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Count the time inside as a phase; exchanges within a pass count as their own phase."""
        start = perf_counter()
        before = COMM_STATS.seconds
        yield
        elapsed = perf_counter() - start
        exchange = COMM_STATS.seconds - before if phase in _WORK else 0.0
        self.seconds[phase] += elapsed - exchange
        self.seconds["exchange"] += exchange

    @contextmanager
    def step(self) -> Iterator[None]:
        """Count the time inside as time of steps."""
        start = perf_counter()
        yield
        self.total += perf_counter() - start


class StreamPhases(Phases):
    """Seconds of each phase of a GPU's work, by events on its current stream.

    A phase begins when the stream has done all earlier work, and ends when it has done the work of
    the phase: the work of one is never counted as that of another that waits for it.
    While the host waits for other ranks, the stream does too, once it has nothing left to do. At
    the end of a step the host waits for the stream, and then reads; nowhere else does it wait for
    the clock's sake. Outside steps nothing is counted.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._times = StreamTimes(device)
        self._phase = _IDLE

    @contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Count the time inside as a phase; exchanges within a pass count as their own phase."""
        before = self._phase
        self._turn(phase)
        yield
        self._turn(before)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Count the time inside as time of steps."""
        self._phase = _IDLE
        with COMM_STATS.use_timer(self._exchange):
            self._times.begin(_IDLE)
            yield
            for phase, seconds in self._times.read():
                self.total += seconds
                if phase != _IDLE:
                    self.seconds[phase] += seconds

    def _turn(self, phase: str) -> None:
        self._times.switch(phase)
        self._phase = phase

    @contextmanager
    def _exchange(self) -> Iterator[None]:
        """Count an exchange among tiles as its own phase; within sums of gradients it is a part."""
        if self._phase not in _WORK:
            yield
            return
        with self.of("exchange"):
            yield


def phases_of(device: torch.device) -> Phases:
    """Return the counter of phases for a device: by events on a GPU, else by the host's clock."""
    return StreamPhases(device) if is_gpu(device) else Phases()
