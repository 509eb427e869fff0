"""The state of one case, while it runs and afterwards."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spbench.record.comparison import RankComparison, RankTime, compute_active_times
from spbench.record.efficiency import SPEEDUPS, compute_efficiency, find_efficiency_time
from spbench.record.stragglers import Straggler
from spbench.stats.summary import (
    Summary,
    clamp_to_floats,
    median,
    median_interval,
    median_of_repeats,
    summarize,
    summarize_repeats,
)
from spbench.suites.case import DERIVED_METRICS
from spbench_core.events.rank_facts import RankFacts
from spbench_core.events.statuses import CaseStatus, RankStatus

RepeatAndRank = tuple[int, int]
"""A repeat and a rank."""


def _sum(values: Sequence[float]) -> float:
    return clamp_to_floats(sum(values))


def _mean(values: Sequence[float]) -> float:
    return _sum(values) / len(values)


FOLDS: dict[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "min": min,
    "sum": _sum,
    "mean": _mean,
}


@dataclass(frozen=True, slots=True)
class MetricInfo:
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


(SKEW,) = (MetricInfo(m.name, m.unit, m.better, m.fold) for m in DERIVED_METRICS)


@dataclass(slots=True)
class CheckResult:
    """A check on one rank and repeat, with all its comparisons."""

    passed: bool
    max_abs_error: float | None
    tolerance: float
    detail: str

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
        error: The ``message`` and ``traceback`` of the exception that ended it; None without one.
        disturbed: The amount of each disturbance by other work, in the worst of its repeats.
    """

    facts: RankFacts
    device: str | None
    coordinates: Mapping[str, Any]
    status: RankStatus = RankStatus.WAITING
    is_near: bool | None = None
    error: Mapping[str, Any] | None = None
    disturbed: Mapping[str, float] = field(default_factory=dict)

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
    metrics: Mapping[str, MetricInfo]
    declared_checks: tuple[str, ...]
    expect: tuple[Mapping[str, Any], ...]
    coordinates: tuple[Mapping[str, Any], ...]
    inject: str | None = None
    until: Mapping[str, float] | None = None
    version: int = 1
    shares: tuple[int, ...] = ()
    scaled: Mapping[str, Any] | None = None


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
        samples: By metric, rank and repeat.
        checks: By name, repeat and rank.
        checked: By rank, whether it has passed all its checks so far.
        outcomes: By name and rank, whether it has passed a check in all repeats so far.
        values: Metrics with one value per repeat: by metric, repeat and rank.
        labelled: Labelled values, such as a link's latency for one message size.
        references: Value and origin of each repeat's reference, by metric, repeat and rank.
        limits: By metric, the reference of the repeat with the median value, with its origin.
        choices: By name, value and reason of choices that the parameters left open.
        repeats_end: The end of the repeats of a case with ``until``.
        timing: By repeat, the time at which the first rank began to measure, in seconds since the
            epoch.
    """

    ended: set[RepeatAndRank] = field(default_factory=set)
    last_end: float | None = None
    jobs: dict[int, int] = field(default_factory=dict)
    ranks: dict[int, CaseRank] = field(default_factory=dict)
    samples: dict[str, dict[int, dict[int, array[float]]]] = field(default_factory=dict)
    checks: dict[str, dict[RepeatAndRank, CheckResult]] = field(default_factory=dict)
    checked: dict[int, bool] = field(default_factory=dict)
    outcomes: dict[str, dict[int, bool]] = field(default_factory=dict)
    values: dict[str, dict[RepeatAndRank, float | None]] = field(default_factory=dict)
    labelled: list[dict[str, Any]] = field(default_factory=list)
    references: dict[str, dict[RepeatAndRank, dict[str, Any]]] = field(default_factory=dict)
    limits: dict[str, dict[str, Any]] = field(default_factory=dict)
    choices: dict[str, dict[str, str]] = field(default_factory=dict)
    repeats_end: RepeatsEnd | None = None
    timing: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreviousAttempt:
    """The status and reason of an earlier attempt of a case."""

    status: CaseStatus
    reason: str | None


@dataclass(slots=True)
class CaseVerdict:
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


@dataclass(slots=True)
class CaseState:
    """A case of a run: its description, its measurements and its result."""

    identity: CaseIdentity
    measured: CaseMeasurements = field(default_factory=CaseMeasurements)
    verdict: CaseVerdict = field(default_factory=CaseVerdict)

    @property
    def id(self) -> str:
        """The id, which is unique in the run."""
        return self.identity.id

    @property
    def status(self) -> CaseStatus:
        """The result, or ``waiting`` or ``running``."""
        return self.verdict.status

    @property
    def repeats(self) -> int:
        """The number of repeats, as far as known."""
        if self.measured.repeats_end is not None:
            return self.measured.repeats_end.repeats
        num_started = len(self.measured.jobs) if self.identity.until else 0
        return max(self.identity.repeat, num_started)

    @property
    def check_counts(self) -> tuple[int, int]:
        """The numbers of passed and of all checks, each counted once per rank."""
        outcomes = self.measured.outcomes.values()
        return sum(sum(ranks.values()) for ranks in outcomes), sum(map(len, outcomes))

    @property
    def all_ended(self) -> bool:
        """Whether every rank has ended every known repeat."""
        return len(self.measured.ended) == self.identity.np * self.repeats

    @property
    def complete(self) -> bool:
        """Whether every rank has ended every repeat, and no further repeat follows."""
        return self.all_ended and not (self.identity.until and self.measured.repeats_end is None)

    @property
    def timed_seconds(self) -> float:
        """The total time of all iterations of the slowest rank, in seconds."""
        times = (sum(map(sum, self.rank_times(rank))) for rank in self.measured.ranks)
        return max(times, default=0.0) / 1000.0

    def has_ended(self, repeat: int) -> bool:
        """Whether every rank has ended that repeat."""
        return all((repeat, rank) in self.measured.ended for rank in range(self.identity.np))

    def rank_times(self, rank: int) -> list[array[float]]:
        """Return the rank's samples of time_ms, one array per repeat."""
        repeats = self.measured.samples.get("time_ms", {}).get(rank, {})
        return [repeats[repeat] for repeat in sorted(repeats)]

    def fold_samples(self, metric: str) -> list[list[float]]:
        """Return the metric's samples over all ranks, one list of iterations per repeat.

        Each iteration's value is folded over ranks by the metric's rule: a time is that of the
        slowest rank. Iterations that not all ranks have finished are left out. Every rank with work
        has time_ms, but only some ranks may have other samples.
        """
        return list(self._fold_by_repeat(metric).values())

    def fold_by_job(self, metric: str) -> list[list[list[float]]]:
        """Return the samples of `fold_samples`, one list of repeats per launch."""
        by_job: dict[int, list[list[float]]] = {}
        for repeat, values in self._fold_by_repeat(metric).items():
            if (job := self.measured.jobs.get(repeat)) is not None and values:
                by_job.setdefault(job, []).append(values)
        return [by_job[job] for job in sorted(by_job)]

    def launch_medians(self, metric: str) -> list[float]:
        """Return the metric's value in each launch: the median over its repeats."""
        return list(map(median_of_repeats, self.fold_by_job(metric)))

    def compute_interval_width(self) -> float | None:
        """Return the width of the 95 % interval of the median time, over that median.

        None with fewer than six launches. A launch counts as one value, because its iterations
        depend on each other.
        """
        medians_ms = self.launch_medians("time_ms")
        interval = median_interval(medians_ms)
        center_ms = median(medians_ms) if medians_ms else 0.0
        if interval is None or center_ms <= 0:
            return None
        low_ms, high_ms = interval
        return (high_ms - low_ms) / center_ms

    def _fold_by_repeat(self, metric: str) -> dict[int, list[float]]:
        fold = FOLDS[self.identity.metrics[metric].fold]
        if metric in self.measured.samples:
            by_repeat: dict[int, list[array[float]]] = {}
            for repeats in self.measured.samples[metric].values():
                for repeat, values in repeats.items():
                    by_repeat.setdefault(repeat, []).append(values)
            if metric == "time_ms":
                by_repeat = {repeat: self.times_of_repeat(repeat) for repeat in by_repeat}
            return {
                repeat: [fold(row) for row in zip(*rows, strict=False)]
                for repeat, rows in sorted(by_repeat.items())
                if rows
            }
        single: dict[int, list[float]] = {}
        for (repeat, _), value in sorted(self.measured.values.get(metric, {}).items()):
            if value is not None:
                single.setdefault(repeat, []).append(value)
        return {repeat: [fold(row)] for repeat, row in single.items()}

    def times_of_repeat(self, repeat: int) -> list[array[float]]:
        """Return the ranks' times of a repeat, for each job in which all ranks have times.

        A rank that ended the repeat without times had no work.
        """
        samples = self.measured.samples.get("time_ms", {})
        ended = self.measured.ended
        rows: list[array[float]] = []
        first = 0
        for np in self.identity.shares or (self.identity.np,):
            ranks = range(first, first + np)
            first += np
            timed = [rank for rank in ranks if repeat in samples.get(rank, ())]
            if len(timed) == np or all((repeat, rank) in ended for rank in {*ranks} - {*timed}):
                rows += (samples[rank][repeat] for rank in timed)
        return rows

    def summary(self, metric: str) -> Summary | None:
        """The metric over all repeats and iterations; None without measurements.

        The p50 of a ratio of two times is the ratio of the p50s of the times, so that it follows
        from them: over several repeats, the median of the ratios would be another number.
        """
        if metric == SKEW.name:
            skew = self.skew()
            return None if skew is None else summarize([skew])
        if metric not in self.identity.metrics:
            return None
        repeats = self.fold_samples(metric)
        summary = summarize_repeats(repeats)
        ratio = self._ratio_of_times(metric) if summary and len(repeats) > 1 else None
        return summary if summary is None or ratio is None else replace(summary, p50=ratio)

    def _ratio_of_times(self, metric: str) -> float | None:
        """Return the value of a ratio of two times; None for other metrics."""
        limits = self.measured.limits
        times = [("time_ms", self._median(name)) for name in SPEEDUPS.get(metric, ())]
        if (name := find_efficiency_time(metric, limits)) is not None:
            times.append((name, limits[name]["value"]))
        ratios = (compute_efficiency(self._median(name), other) for name, other in times)
        return next((ratio for ratio in ratios if ratio is not None), None)

    def _median(self, metric: str) -> float | None:
        summary = self.summary(metric)
        return None if summary is None else summary.p50

    def rank_medians(self) -> dict[int, float]:
        """Return each rank's median over repeats of the median iteration, in ms."""
        times = {rank: self.rank_times(rank) for rank in sorted(self.measured.ranks)}
        return {rank: median_of_repeats(repeats) for rank, repeats in times.items() if any(repeats)}

    def skew(self) -> float | None:
        """Return the skew of the slowest rank; None if no two ranks do the same work."""
        return max(self.rank_skews().values(), default=None)

    def rank_skews(self) -> Mapping[int, float]:
        """Return each rank's median over that of the typical rank with the same work.

        Waits for other ranks are left out if they are measured.
        """
        return RankComparison(self.identity).compare(self.active_medians()).ratios

    def mean_skews(self) -> Mapping[int, float]:
        """Return the ratios of mean times, which include waits and interruptions."""
        times = {rank: self.rank_times(rank) for rank in sorted(self.measured.ranks)}
        means = {
            rank: RankTime(sum(map(sum, repeats)) / sum(map(len, repeats)))
            for rank, repeats in times.items()
            if any(repeats)
        }
        return RankComparison(self.identity).compare(means).ratios

    def active_medians(self) -> dict[int, RankTime]:
        """Return each rank's median time, and its median without waits for other ranks."""
        waits = RankComparison(self.identity).waits
        times = {}
        for rank, total in self.rank_medians().items():
            active = self._active_times(waits, rank)
            times[rank] = RankTime(total, median_of_repeats(active) if active else None)
        return times

    def _active_times(self, waits: Sequence[str], rank: int) -> list[Sequence[float]]:
        repeats = sorted(self.measured.samples["time_ms"][rank])
        active_times = (compute_active_times(self, waits, rank, repeat) for repeat in repeats)
        return [values for values in active_times if values]
