"""The state of one case, and the figures that follow from its measurements."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spbench.record.case_parts import (
    SKEW,
    CaseExecution,
    CaseIdentity,
    CaseMeasurements,
    Disturbance,
)
from spbench.record.comparison import RankComparison, RankTime, compute_active_times
from spbench.record.efficiency import SPEEDUPS, compute_efficiency, find_efficiency_time
from spbench.stats.summary import (
    Summary,
    clamp_to_floats,
    median,
    median_interval,
    median_of_repeats,
    summarize,
    summarize_repeats,
)
from spbench_core.events.statuses import CaseStatus


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


@dataclass(slots=True)
class CaseState:
    """A case of a run: its description, its measurements and its result.

    Attributes:
        disturbances: The kept result of `find_disturbances`, with the end of the case and the
            number of its ended repeats and ranks at that time.
    """

    identity: CaseIdentity
    measured: CaseMeasurements = field(default_factory=CaseMeasurements)
    execution: CaseExecution = field(default_factory=CaseExecution)
    disturbances: tuple[tuple[float | None, int], Sequence[Disturbance]] | None = field(
        default=None, repr=False, compare=False
    )

    @property
    def id(self) -> str:
        """The id, which is unique in the run."""
        return self.identity.id

    @property
    def status(self) -> CaseStatus:
        """The result, or ``waiting`` or ``running``."""
        return self.execution.status

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
        passed_by_rank_of_checks = self.measured.passed_by_check.values()
        num_passed = sum(sum(passed.values()) for passed in passed_by_rank_of_checks)
        return num_passed, sum(map(len, passed_by_rank_of_checks))

    @property
    def all_ended(self) -> bool:
        """Whether every rank has ended every known repeat."""
        return len(self.measured.ended) == self.identity.np * self.repeats

    @property
    def num_ended_repeats(self) -> int:
        """The number of repeats that all ranks have ended."""
        return len(self.measured.ended) // self.identity.np

    @property
    def waits_for_launch(self) -> bool:
        """Whether the ranks have ended all started repeats, and others follow."""
        num_started = len(self.measured.jobs)
        has_idle_ranks = len(self.measured.ended) == self.identity.np * num_started
        return (
            self.status == CaseStatus.RUNNING
            and num_started > 0
            and has_idle_ranks
            and not self.complete
        )

    @property
    def complete(self) -> bool:
        """Whether every rank has ended every repeat, and no further repeat follows."""
        return self.all_ended and not (self.identity.until and self.measured.repeats_end is None)

    @property
    def timed_seconds(self) -> float:
        """The total time of all iterations of the slowest rank, in seconds."""
        times = (sum(map(sum, self.list_rank_times(rank))) for rank in self.measured.ranks)
        return max(times, default=0.0) / 1000.0

    def has_ended(self, repeat: int) -> bool:
        """Whether every rank has ended that repeat."""
        return all((repeat, rank) in self.measured.ended for rank in range(self.identity.np))

    def list_rank_times(self, rank: int) -> list[array[float]]:
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

    def compute_launch_medians(self, metric: str) -> list[float]:
        """Return the metric's value in each launch: the median over its repeats."""
        return list(map(median_of_repeats, self.fold_by_job(metric)))

    def compute_interval_width(self) -> float | None:
        """Return the width of the 95 % interval of the median time, over that median.

        None with fewer than six launches. A launch counts as one value, because its iterations
        depend on each other.
        """
        medians_ms = self.compute_launch_medians("time_ms")
        interval = median_interval(medians_ms)
        center_ms = median(medians_ms) if medians_ms else 0.0
        if interval is None or center_ms <= 0:
            return None
        low_ms, high_ms = interval
        return (high_ms - low_ms) / center_ms

    def _fold_by_repeat(self, metric: str) -> dict[int, list[float]]:
        fold = FOLDS[self.identity.metrics[metric].fold]
        if metric in self.measured.samples:
            rows_by_repeat: dict[int, list[array[float]]] = {}
            for repeats in self.measured.samples[metric].values():
                for repeat, values in repeats.items():
                    rows_by_repeat.setdefault(repeat, []).append(values)
            if metric == "time_ms":
                rows_by_repeat = {
                    repeat: self.list_times_of_repeat(repeat) for repeat in rows_by_repeat
                }
            return {
                repeat: [fold(row) for row in zip(*rows, strict=False)]
                for repeat, rows in sorted(rows_by_repeat.items())
                if rows
            }
        values_by_repeat: dict[int, list[float]] = {}
        for (repeat, _), value in sorted(self.measured.repeat_values.get(metric, {}).items()):
            if value is not None:
                values_by_repeat.setdefault(repeat, []).append(value)
        return {repeat: [fold(row)] for repeat, row in values_by_repeat.items()}

    def list_times_of_repeat(self, repeat: int) -> list[array[float]]:
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
        ratio = self._compute_ratio_of_times(metric) if summary and len(repeats) > 1 else None
        return summary if summary is None or ratio is None else replace(summary, p50=ratio)

    def _compute_ratio_of_times(self, metric: str) -> float | None:
        """Return the value of a ratio of two times; None for other metrics."""
        references = self.measured.median_references
        compared_times = [("time_ms", self._median(name)) for name in SPEEDUPS.get(metric, ())]
        if (name := find_efficiency_time(metric, references)) is not None:
            compared_times.append((name, references[name]["value"]))
        ratios = (compute_efficiency(self._median(name), other) for name, other in compared_times)
        return next((ratio for ratio in ratios if ratio is not None), None)

    def _median(self, metric: str) -> float | None:
        summary = self.summary(metric)
        return None if summary is None else summary.p50

    def compute_rank_medians(self) -> dict[int, float]:
        """Return each rank's median over repeats of the median iteration, in ms."""
        times = {rank: self.list_rank_times(rank) for rank in sorted(self.measured.ranks)}
        return {rank: median_of_repeats(repeats) for rank, repeats in times.items() if any(repeats)}

    def skew(self) -> float | None:
        """Return the skew of the slowest rank; None if no two ranks do the same work."""
        return max(self.compute_rank_skews().values(), default=None)

    def compute_rank_skews(self) -> Mapping[int, float]:
        """Return each rank's median over that of the typical rank with the same work.

        Waits for other ranks are left out if they are measured.
        """
        return RankComparison(self.identity).compare(self.compute_active_medians()).ratios

    def compute_mean_skews(self) -> Mapping[int, float]:
        """Return the ratios of mean times, which include waits and interruptions."""
        times = {rank: self.list_rank_times(rank) for rank in sorted(self.measured.ranks)}
        means = {
            rank: RankTime(sum(map(sum, repeats)) / sum(map(len, repeats)))
            for rank, repeats in times.items()
            if any(repeats)
        }
        return RankComparison(self.identity).compare(means).ratios

    def compute_active_medians(self) -> dict[int, RankTime]:
        """Return each rank's median time, and its median without waits for other ranks."""
        waits = RankComparison(self.identity).waits
        times = {}
        for rank, total in self.compute_rank_medians().items():
            active = self._active_times(waits, rank)
            times[rank] = RankTime(total, median_of_repeats(active) if active else None)
        return times

    def _active_times(self, waits: Sequence[str], rank: int) -> list[Sequence[float]]:
        repeats = sorted(self.measured.samples["time_ms"][rank])
        active_times = (compute_active_times(self, waits, rank, repeat) for repeat in repeats)
        return [values for values in active_times if values]
