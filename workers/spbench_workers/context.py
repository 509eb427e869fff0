"""The context of a benchmark: parameters, ranks, and reports of results."""

from __future__ import annotations

import hashlib
import math
import os
from array import array
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.parameters import Params
from spbench_core.catalog.planted_fault import COMMON_FAULTS, parse_fault
from spbench_core.catalog.typed_params import ParamsT, read_params
from spbench_core.events.statuses import LogLevel, RankStatus
from spbench_workers import faults
from spbench_workers.disturbance import Counters, find_disturbances, measure_slowdown, read_counters

if TYPE_CHECKING:
    from spbench_parallel.verify.worst_error import WorstError
    from spbench_workers.channel.base import Channel
    from spbench_workers.comm import World


class Context:
    """The context of a case on one rank, the argument of ``run(context)``.

    Attributes:
        world: The ranks of the job, and this rank's location.
        params: The benchmark's parameters by name, complete and checked;
            `read_params` returns them as attributes.
        first: Whether no case of the same benchmark directly precedes.
        last: Whether no case of the same benchmark directly follows.
        verbose: Whether the benchmark's own lines have more details.
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
        verbose: bool = False,
    ) -> None:
        self.world = world
        self.params = params
        self.verbose = verbose
        self.first = first
        self.last = last
        self.entry = BENCHMARKS[benchmark]
        self._channel = channel
        self._fault = None if inject is None else parse_fault(inject)
        self._repeat = repeat
        self._ids: dict[str, Any] = {"case": case, "repeat": repeat}
        self._before: Counters | None = None
        self._typed: dict[type, Any] = {}

    def read_params(self, cls: type[ParamsT]) -> ParamsT:
        """Return the parameters as an instance of the benchmark's dataclass, created once."""
        if cls not in self._typed:
            self._typed[cls] = read_params(cls, self.params)
        typed: ParamsT = self._typed[cls]
        return typed

    @property
    def seed(self) -> int:
        """The seed of this repeat's data, the same on every rank."""
        return int(self.params.get("seed", 0)) + 1000003 * self._repeat

    def seed_for(self, *parts: str | int) -> int:
        """Return a seed for some words, the same on every rank."""
        text = repr((self.seed, *parts)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 2

    def planted(self, fault: str) -> bool:
        """Return whether ``--inject`` asks this rank for a fault.

        One rank gets it, by default the last.
        """
        return self.planted_in_job(fault) and self.world.rank == self.faulty_rank

    def planted_in_job(self, fault: str) -> bool:
        """Return whether ``--inject`` asks for a fault that all ranks must show together."""
        return self._fault is not None and self._fault.name == fault

    @property
    def faulty_rank(self) -> int:
        """The rank that gets a fault if ``--inject`` asks for one."""
        size = self.world.size
        return size - 1 if self._fault is None else self._fault.find_rank(size)

    def with_fault(
        self, body: Callable[[], object], seconds: float | None = None
    ) -> Callable[[], object]:
        """Return ``body`` with the common fault that is injected on this rank, if any.

        ``seconds`` are those of an iteration without the fault (default: measured).
        """
        fault = self._fault
        if fault is None or fault.name not in COMMON_FAULTS or not self.planted(fault.name):
            return body
        return faults.inject_fault(fault.name, body, seconds, fault.factor)

    def largest(self, value: float) -> float:
        """Return the largest of the ranks' values. All ranks must call it."""
        from mpi4py import MPI

        maximum: float = self.world.comm.allreduce(value, op=MPI.MAX)
        return maximum

    def median_of_slowest(self, times: Sequence[float]) -> float:
        """Return the median over iterations of the slowest rank's times.

        The console computes the same. All ranks must call it, with the same number of times.
        """
        from mpi4py import MPI

        slowest = array("d", times)
        self.world.comm.Allreduce(MPI.IN_PLACE, slowest, op=MPI.MAX)
        return median(slowest)

    def start(self, **fields: Any) -> None:
        """Report that the case starts."""
        self._before = read_counters()
        self._channel.send("case_start", **self._ids, **fields)

    def end(self, status: RankStatus, **fields: Any) -> None:
        """Report that the case has ended on this rank: ``ok`` or ``error``."""
        if disturbances := self._find_disturbances():
            fields["disturbed"] = disturbances
        self._channel.send("case_end", **self._ids, status=status, **fields)

    def _find_disturbances(self) -> dict[str, float]:
        """Return the disturbances of this rank's cores since the case started."""
        if self._before is None:
            return {}
        cpus = os.sched_getaffinity(0)
        changes = find_disturbances(self._before, read_counters(), len(cpus))
        slowdown = measure_slowdown(cpus)
        return changes | {"slowed": slowdown} if slowdown > 0 else changes

    def progress(self, phase: str, done: int, total: int) -> None:
        """Report progress in a phase such as ``timing``, never in a timed region."""
        self._channel.send("progress", **self._ids, phase=phase, done=done, total=total)

    def samples(self, metric: str, values: array[float] | list[float]) -> None:
        """Send a batch of iterations' values, in the metric's unit."""
        rounded = [float(f"{value:.7g}") for value in values]
        self._channel.send("samples", **self._ids, metric=metric, values=rounded)

    def check(
        self, name: str, max_abs_error: float, tolerance: float = 0.0, detail: str = ""
    ) -> bool:
        """Report the check of a result against its reference; return whether it passed.

        NaN never passes.

        Args:
            name: One of the benchmark's checks.
            max_abs_error: The largest difference from the reference.
            tolerance: The largest allowed difference; 0 requires equality.
            detail: The location of the largest difference.
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

    def check_worst(self, name: str, worst: WorstError) -> bool:
        """Report the worst of several comparisons as a check; return whether it passed."""
        return self.check(name, worst.error, worst.tolerance, worst.detail)

    def metric(self, name: str, value: float, **labels: Any) -> None:
        """Report one of the benchmark's metrics, with labels such as ``peer=1, bytes=8``."""
        fields: dict[str, Any] = {"labels": labels} if labels else {}
        finite = value if math.isfinite(value) else None
        self._channel.send("metric", **self._ids, name=name, value=finite, **fields)

    def limit(self, name: str, value: float, measured_by: str) -> None:
        """Report the measured limit of a metric, and how it was measured."""
        finite = value if math.isfinite(value) else None
        self._channel.send("metric", **self._ids, name=name, value=finite, measured_by=measured_by)

    def choice(self, name: str, value: str, reason: str) -> None:
        """Report a choice that the parameters left open, and its reason."""
        self._channel.send("choice", **self._ids, name=name, value=value, reason=reason)

    def device(
        self,
        name: str,
        reason: str,
        *,
        speaks: bool,
        near: bool | None = None,
        address: str | None = None,
    ) -> None:
        """Report the device of this rank, and the reason of the choice.

        Args:
            name: ``cpu``, or the GPU's number and kind.
            reason: The reason, and facts about the device.
            speaks: Whether it is also reported as a choice of the case, which one rank does.
            near: Whether it is near the rank's cores; None if that is unknown.
            address: The PCI address of the GPU; None for the CPU.
        """
        fields = {"device": name, "reason": reason, "near": near}
        if address is not None:
            fields["address"] = address
        self._channel.send("device", **self._ids, **fields)
        if speaks:
            self.choice("device", name, reason)

    def log(self, message: str, level: LogLevel = LogLevel.INFO) -> None:
        """Report a message of one line."""
        self._channel.send("log", **self._ids, level=level, message=message)

    def say(self, line: str) -> None:
        """Report a line that a standalone run prints unchanged.

        The benchmark's entry has ``own_lines``, and rank 0 reports them.
        """
        self.log(line, level=LogLevel.LINE)
