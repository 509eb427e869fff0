"""The figures of one rank in a case: its times so far, its rate and its checks."""

from __future__ import annotations

from collections.abc import Iterable

from spbench.record.case_state import CaseState
from spbench.record.comparison import (
    RankComparison,
    RankRatios,
    RankTime,
    compute_active_times,
)
from spbench.record.coordinates import shorten_coordinates
from spbench.stats.sorted_samples import SortedRepeats
from spbench_core.events.statuses import CheckOutcome

_NO_TIMES = SortedRepeats()
MAX_RECENT = 10
"""The number of newest times that a view draws."""


def find_rate_metric(case: CaseState) -> str | None:
    """Return the first metric of a case in GB/s; None if it has none."""
    metrics = case.identity.metrics.values()
    return next((metric.name for metric in metrics if metric.unit == "GB/s"), None)


class RankFigures:
    """A rank's times over all repeats so far, its coordinates and its rate.

    Attributes:
        case: The case; None before the rank's first.
        coordinates: Its coordinates in the layout, by name: ``{"tile": "0,1"}``.
        times: Its times in ms.
        p50: The median of the repeats' medians in ms; None without times.
        active: Its times in ms without its waits for other ranks; empty if not measured.
    """

    __slots__ = (
        *("_num_active", "_num_taken", "_percentiles", "_rate_metric", "_waits"),
        *("case", "active", "p50", "coordinates", "rank", "times"),
    )

    def __init__(
        self, rank: int, case: CaseState | None, comparison: RankComparison | None = None
    ) -> None:
        self.rank = rank
        self.case = case
        state = case.measured.ranks.get(rank) if case else None
        self.coordinates = shorten_coordinates(state.coordinates) if state else {}
        self.times = SortedRepeats() if case else _NO_TIMES
        self.p50: float | None = None
        self.active = SortedRepeats()
        self._percentiles: dict[float, float] = {}
        self._num_taken: dict[int, int] = {}
        self._num_active: dict[int, int] = {}
        self._waits = comparison.waits if comparison is not None else ()
        self._rate_metric = find_rate_metric(case) if case else None

    def take_times(self) -> float | None:
        """Add new times, and return the new median; None without new times."""
        by_rank = self.case.measured.samples.get("time_ms") if self.case else None
        if not by_rank or self.rank not in by_rank:
            return None
        num_times_before = len(self.times)
        for repeat, samples_ms in by_rank[self.rank].items():
            start = self._num_taken.get(repeat, 0)
            if len(samples_ms) > start:
                self.times.add(repeat, samples_ms[start:])
                self._num_taken[repeat] = len(samples_ms)
        any_active = self._take_active(by_rank[self.rank])
        if len(self.times) == num_times_before:
            return self.p50 if any_active else None
        self._percentiles.clear()
        self.p50 = self.times.median()
        return self.p50

    def _take_active(self, repeats: Iterable[int]) -> bool:
        """Add new times without waits, and return whether there were any."""
        num_before = len(self.active)
        if self.case is None or not self._waits:
            return False
        for repeat in repeats:
            start = self._num_active.get(repeat, 0)
            active_ms = compute_active_times(
                self.case, self._waits, self.rank, repeat, slice(start, None)
            )
            if active_ms:
                self.active.add(repeat, active_ms)
                self._num_active[repeat] = start + len(active_ms)
        return len(self.active) > num_before

    @property
    def time(self) -> RankTime | None:
        """Its medians; None without times."""
        if self.p50 is None:
            return None
        return RankTime(self.p50, self.active.median() if self.active else None)

    def find_compared_time(self, compared: RankRatios) -> float | None:
        """Return its median in ms without waits for slower ranks; None if not measured.

        The time of the exchange itself, the shortest wait of any rank, is part of it. A rank that
        is compared with no other rank has its active time.
        """
        if not self.active:
            return None
        return compared.compared.get(self.rank, self.active.median())

    def percentile(self, fraction: float) -> float | None:
        """Return a percentile of the times in ms; None without times."""
        if fraction not in self._percentiles and self.times:
            self._percentiles[fraction] = self.times.values.percentile(fraction)
        return self._percentiles.get(fraction)

    def recent(self) -> tuple[float, ...]:
        """Return the newest times of the newest repeat in ms."""
        repeats = (
            self.case.measured.samples.get("time_ms", {}).get(self.rank) if self.case else None
        )
        return tuple(repeats[max(repeats)][-MAX_RECENT:]) if repeats else ()

    def gb_s(self, repeat: int) -> float | None:
        """Return the newest value, up to a repeat, of the case's first metric in GB/s."""
        if self.case is None or self._rate_metric is None:
            return None
        repeats = self.case.measured.samples.get(self._rate_metric, {}).get(self.rank)
        if repeats:
            newest = repeats[max(repeats)]
            return newest[-1] if newest else None
        value_by_repeat_and_rank = self.case.measured.repeat_values.get(self._rate_metric)
        while value_by_repeat_and_rank and repeat >= 0:
            if (repeat, self.rank) in value_by_repeat_and_rank:
                return value_by_repeat_and_rank[repeat, self.rank]
            repeat -= 1
        return None

    def check(self) -> CheckOutcome | None:
        """Return the combined result of its checks; None before the first."""
        passed = self.case.measured.passed_by_rank.get(self.rank) if self.case else None
        if passed is None:
            return None
        return CheckOutcome.PASSED if passed else CheckOutcome.FAILED
