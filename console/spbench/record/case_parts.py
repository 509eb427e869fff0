"""Parts of a case's state: its description, its measurements and its result."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from spbench.record.machine.gpu_loads import GpuFigures, GpuKey
from spbench.record.planted_faults import FaultOutcome, find_fault_outcome
from spbench.record.stragglers import Straggler
from spbench.suites.case import DERIVED_METRICS
from spbench_core.events.fields import Event
from spbench_core.events.rank_events import RankFacts
from spbench_core.events.statuses import CaseStatus, RankStatus

RepeatAndRank = tuple[int, int]
"""A repeat and a rank."""


class DisturbanceCause(StrEnum):
    """The cause of a disturbance, the most frequent one first."""

    WAITED = "waited"
    STOLEN = "stolen"
    THROTTLED = "throttled"
    HOT = "hot"
    SLOWED = "slowed"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A disturbance of the ranks on a host in a case.

    Attributes:
        cause: The cause.
        host: The host.
        amount: The largest share of the time; for heat, how often CPUs were slowed down.
        rank: The rank, if only one is known to be affected.
    """

    cause: DisturbanceCause
    host: str
    amount: float
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """A metric as the catalog described it when the run started.

    Attributes:
        part_of: The metric of which it is a share.
        waits: Whether it is a part in which a rank may wait for others.

    The logs of older runs have neither.
    """

    name: str
    unit: str
    better: str
    fold: str
    part_of: str | None = None
    waits: bool = False


(SKEW,) = (MetricDescription(m.name, m.unit, m.better, m.fold) for m in DERIVED_METRICS)


@dataclass(slots=True)
class CheckResult:
    """A check on one rank and repeat, with all its comparisons."""

    passed: bool
    max_abs_error: float | None
    tolerance: float
    detail: str

    @classmethod
    def from_event(cls, event: Event) -> Self:
        """Return the result of one comparison. It fails with an error above its tolerance."""
        error = event.get("max_abs_error", 0.0)
        tolerance = event.get("tolerance", 0.0)
        within = error is not None and error <= tolerance
        detail = event.get("detail", "")
        if event["passed"] and not within:
            detail = f"{detail} (though the rank said that it passed)".lstrip()
        return cls(event["passed"] and within, event.get("max_abs_error"), tolerance, detail)

    @property
    def error(self) -> float:
        """The largest error, infinite if it was not a number."""
        return math.inf if self.max_abs_error is None else self.max_abs_error

    def add(self, other: CheckResult) -> None:
        """Add a comparison; the worse one is kept."""
        worse = not other.passed and self.passed
        if worse or (other.passed == self.passed and other.error > self.error):
            self.max_abs_error = other.max_abs_error
            self.detail = other.detail
            self.tolerance = other.tolerance
        self.passed = self.passed and other.passed


@dataclass(slots=True)
class CaseRank:
    """A rank in a case.

    Attributes:
        facts: Facts that hold for the entire launch.
        device: The device on which it computes in this case.
        coordinates: Its tile, stage and replica; empty if it has none.
        is_near: Whether its device is near its CPUs; None if unknown.
        gpu_address: The PCI address of its GPU; None for the CPU, or if unknown.
        error: The ``message`` and ``traceback`` of the exception that ended it; None without one.
        disturbances: The amount of each disturbance by other work, in the worst of its repeats.
    """

    facts: RankFacts
    device: str | None
    coordinates: Mapping[str, Any]
    status: RankStatus = RankStatus.WAITING
    is_near: bool | None = None
    gpu_address: str | None = None
    error: Mapping[str, Any] | None = None
    disturbances: Mapping[str, float] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Its host."""
        return self.facts.host


@dataclass(frozen=True, slots=True)
class CaseIdentity:
    """A case as the run's first event describes it.

    Attributes:
        repeat: The number of repeats; with ``until`` the minimum.
        measures: ``rank``, ``link`` or ``job``: the part to which a slow result applies.
        declared_checks: Names of the checks that every rank must report in every repeat.
        expect: The suite's expectations: metric, op and limit.
        coordinates: Tile, stage and replica of each rank; empty if it has none.
        inject: The planted fault.
        until: The interval and the time that end repeats; None for a fixed number of repeats.
        version: The version of the benchmark.
        shares: The number of ranks of each of its jobs if it has one on each host.
        scaled: The values that it shares with the same case on other numbers of ranks, see
            `run_events.SCALED`.
    """

    id: str
    name: str
    benchmark: str
    params: Mapping[str, Any]
    np: int
    repeat: int
    measures: str
    metrics: Mapping[str, MetricDescription]
    declared_checks: tuple[str, ...]
    expect: tuple[Mapping[str, Any], ...]
    coordinates: tuple[Mapping[str, Any], ...]
    inject: str | None = None
    until: Mapping[str, float] | None = None
    version: int = 1
    shares: tuple[int, ...] = ()
    scaled: Mapping[str, Any] | None = None

    @classmethod
    def from_event(cls, case: Mapping[str, Any]) -> Self:
        """Return the identity of a case in ``run_start``."""
        metrics = {info["name"]: MetricDescription(**info) for info in case["metrics"]}
        return cls(
            id=case["id"],
            name=case["name"],
            benchmark=case["benchmark"],
            params=case["params"],
            np=case["np"],
            repeat=case["repeat"],
            measures=case["measures"],
            metrics=metrics,
            declared_checks=tuple(case["checks"]),
            expect=tuple(case["expect"]),
            coordinates=tuple(case["places"]),
            inject=case.get("inject"),
            until=case.get("until"),
            version=case.get("version", 1),
            shares=tuple(case.get("shares", ())),
            scaled=case.get("scaled"),
        )


@dataclass(frozen=True, slots=True)
class RepeatsEnd:
    """The end of the repeats of a case with ``until``.

    Attributes:
        reason: ``interval``, ``max_time``, ``repeats`` (their limit) or ``check`` (one failed).
        width: The width of the median's 95 % interval over the median; None with few launches.
    """

    repeats: int
    reason: str
    width: float | None


@dataclass(slots=True)
class CaseMeasurements:
    """The measurements of a case's ranks.

    Attributes:
        ended: The repeats that ranks have ended.
        last_end: The time at which a rank last ended a repeat, by that rank's clock.
        jobs: The number of the job that ran each repeat.
        ranks: The ranks that began the case.
        unstarted_ranks: The ranks of a launch that lost one of them before it began the case.
        samples: By metric, rank and repeat.
        checks: By name, repeat and rank.
        passed_by_rank: By rank, whether it has passed all its checks so far.
        passed_by_check: By name and rank, whether it has passed a check in all repeats so far.
        repeat_values: Metrics with one value per repeat: by metric, repeat and rank.
        labelled: Labelled values, such as a link's latency for one message size.
        references: Value and origin of each repeat's reference, by metric, repeat and rank.
        median_references: By metric, the reference of the repeat with the median value, with its
            origin.
        choices: By name, value and reason of choices that the parameters left open.
        repeats_end: The end of the repeats of a case with ``until``.
        timing: By repeat, the time at which the first rank began to measure, in seconds since the
            epoch.
        gpu_addresses: By host, the PCI addresses of the GPUs of its ranks; empty for CPUs only.
        gpus: The figures of each GPU of its ranks while it was timed.
    """

    ended: set[RepeatAndRank] = field(default_factory=set)
    last_end: float | None = None
    jobs: dict[int, int] = field(default_factory=dict)
    ranks: dict[int, CaseRank] = field(default_factory=dict)
    unstarted_ranks: dict[int, CaseRank] = field(default_factory=dict)
    samples: dict[str, dict[int, dict[int, array[float]]]] = field(default_factory=dict)
    checks: dict[str, dict[RepeatAndRank, CheckResult]] = field(default_factory=dict)
    passed_by_rank: dict[int, bool] = field(default_factory=dict)
    passed_by_check: dict[str, dict[int, bool]] = field(default_factory=dict)
    repeat_values: dict[str, dict[RepeatAndRank, float | None]] = field(default_factory=dict)
    labelled: list[dict[str, Any]] = field(default_factory=list)
    references: dict[str, dict[RepeatAndRank, dict[str, Any]]] = field(default_factory=dict)
    median_references: dict[str, dict[str, Any]] = field(default_factory=dict)
    choices: dict[str, dict[str, str]] = field(default_factory=dict)
    repeats_end: RepeatsEnd | None = None
    timing: dict[int, float] = field(default_factory=dict)
    gpu_addresses: dict[str, set[str]] = field(default_factory=dict)
    gpus: dict[GpuKey, GpuFigures] = field(default_factory=dict)

    @property
    def known_ranks(self) -> dict[int, CaseRank]:
        """The ranks that began the case, or otherwise those of its launch that did not."""
        return self.ranks or self.unstarted_ranks


@dataclass(frozen=True, slots=True)
class PreviousAttempt:
    """The status and reason of an earlier attempt of a case."""

    status: CaseStatus
    reason: str | None


@dataclass(slots=True)
class CaseExecution:
    """The progress and the result of a case. Times are seconds since the epoch.

    Attributes:
        status: ``waiting`` or ``running`` until the case is judged, then its result.
        started: The time of the console's clock if it ``has_begun``, otherwise of a rank's.
        job: The number of its last launch.
        previous_attempts: The results of earlier attempts.
        stragglers: Ranks and hosts that were slow.
    """

    status: CaseStatus = CaseStatus.WAITING
    reason: str | None = None
    traceback: str | None = None
    started: float | None = None
    has_begun: bool = False
    finished: float | None = None
    attempts: int = 0
    job: int | None = None
    expectations: list[dict[str, Any]] = field(default_factory=list)
    previous_attempts: tuple[PreviousAttempt, ...] = ()
    stragglers: tuple[Straggler, ...] = ()

    @property
    def shown_status(self) -> CaseStatus:
        """The status; ``flaky`` if the case has passed only in a later attempt."""
        passed_later = self.status == CaseStatus.PASSED and self.previous_attempts
        return CaseStatus.FLAKY if passed_later else self.status

    @property
    def status_text(self) -> CaseStatus | FaultOutcome:
        """The status for people, who see whether a planted fault was found."""
        outcome = find_fault_outcome(self.reason) if self.status.is_bad else None
        return outcome or self.shown_status
