"""What a benchmark is given: its parameters, the other ranks, and where results go."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spbench_core.catalog import BENCHMARKS, COMMON_FAULTS
from spbench_core.catalog.parameters import Params
from spbench_workers import faults

if TYPE_CHECKING:
    from spbench_workers.channel import Channel
    from spbench_workers.comm import World


class Context:
    """One case on one rank. A benchmark module's ``run(context)`` gets it.

    Attributes:
        world: The ranks of the job, and this rank's place among them.
        params: The benchmark's parameters, complete and checked.
        first: Whether no case of this benchmark comes directly before.
        last: Whether no case of this benchmark comes directly after.
    """

    def __init__(
        self,
        world: World,
        channel: Channel,
        *,
        case: str,
        benchmark: str,
        params: Params,
        repeat: int = 0,
        inject: str | None = None,
        first: bool = True,
        last: bool = True,
    ) -> None:
        self.world = world
        self.params = params
        self.first, self.last = first, last
        self.entry = BENCHMARKS[benchmark]
        self._channel = channel
        self._inject = inject
        self._repeat = repeat
        self._ids: dict[str, Any] = {"case": case, "repeat": repeat}

    @property
    def seed(self) -> int:
        """The seed of this repeat's data, the same on every rank."""
        return int(self.params.get("seed", 0)) + 1000003 * self._repeat

    def seed_for(self, *words: str | int) -> int:
        """Return a seed of its own for these words, the same on every rank that gives them."""
        text = repr((self.seed, *words)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 2

    def planted(self, fault: str) -> bool:
        """Whether ``--inject`` asks this rank for that fault: the last rank is the victim."""
        return self._inject == fault and self.world.rank == self.world.size - 1

    def planted_in_job(self, fault: str) -> bool:
        """Whether ``--inject`` asks for a fault that all ranks must show together."""
        return self._inject == fault

    def with_fault(self, body: Callable[[], object], seconds: float) -> Callable[[], object]:
        """Return ``body`` with the common fault in it that this rank is to show, if any."""
        if self._inject in COMMON_FAULTS and self.planted(self._inject):
            return faults.plant(self._inject, body, seconds)
        return body

    def slowest(self, seconds: float) -> float:
        """Return the greatest of the ranks' values. All ranks must call it."""
        from mpi4py import MPI

        value: float = self.world.comm.allreduce(seconds, op=MPI.MAX)
        return value

    def start(self, **fields: Any) -> None:
        """Say that the case starts."""
        self._channel.send("case_start", **self._ids, **fields)

    def end(self, status: str, **fields: Any) -> None:
        """Say that the case has ended on this rank: ``ok``, or ``error`` with why."""
        self._channel.send("case_end", **self._ids, status=status, **fields)

    def progress(self, phase: str, done: int, total: int) -> None:
        """Say how far a phase is: ``warmup``, ``timing``, ``check``. Never in a timed region."""
        self._channel.send("progress", **self._ids, phase=phase, done=done, total=total)

    def samples(self, metric: str, values: array[float] | list[float]) -> None:
        """Send a batch of iterations' values, in the metric's unit."""
        rounded = [float(f"{value:.7g}") for value in values]
        self._channel.send("samples", **self._ids, metric=metric, values=rounded)

    def check(
        self, name: str, max_abs_error: float, tolerance: float = 0.0, detail: str = ""
    ) -> bool:
        """Judge a result against its reference; a NaN never passes.

        Args:
            name: One of the benchmark's checks.
            max_abs_error: The largest difference from the reference.
            tolerance: The largest that is allowed; 0 asks for equality.
            detail: Where the largest difference is.
        """
        passed = max_abs_error <= tolerance
        error = max_abs_error if math.isfinite(max_abs_error) else None
        self._channel.send(
            "check",
            **self._ids,
            name=name,
            passed=passed,
            max_abs_error=error,
            tolerance=tolerance,
            detail=detail,
        )
        return passed

    def metric(self, name: str, value: float, **labels: Any) -> None:
        """Give one of the benchmark's metrics. Labels say of what: ``peer=1, bytes=8``."""
        fields: dict[str, Any] = {"labels": labels} if labels else {}
        finite = value if math.isfinite(value) else None
        self._channel.send("metric", **self._ids, name=name, value=finite, **fields)

    def limit(self, name: str, value: float, measured_by: str) -> None:
        """Give what a metric could reach at best, as measured in this job, and how."""
        finite = value if math.isfinite(value) else None
        self._channel.send("metric", **self._ids, name=name, value=finite, measured_by=measured_by)

    def choice(self, name: str, value: str, reason: str) -> None:
        """Say what was chosen where the parameters left it open, and why."""
        self._channel.send("choice", **self._ids, name=name, value=value, reason=reason)

    def device(self, name: str, reason: str, *, speaks: bool) -> None:
        """Say on which device this rank computes, and why.

        Args:
            name: ``cpu``, or the GPU's number and kind.
            reason: Why, and what is known of it.
            speaks: Whether it is a choice of the case too: one rank says so.
        """
        self._channel.send("device", **self._ids, device=name, reason=reason)
        if speaks:
            self.choice("device", name, reason)

    def log(self, message: str, level: str = "info") -> None:
        """Say something in one line."""
        self._channel.send("log", **self._ids, level=level, message=message)

    def say(self, line: str) -> None:
        """Say a line of the benchmark's own, which by hand is printed as it is.

        The benchmark's entry has ``own_lines``, and rank 0 says them.
        """
        self.log(line, level="line")
