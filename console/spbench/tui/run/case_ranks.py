"""The ranks of a running case and of a finished one, as rows of a table."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from spbench.record.case_state import CaseState
from spbench.record.comparison import RankComparison, RankRatios, RankTime
from spbench.record.coordinates import CoordinateName, list_coordinate_names
from spbench.record.messages.slowness import describe_slowness, find_slow_ranks
from spbench.record.rank_figures import RankFigures
from spbench.record.rank_rows import RankRow
from spbench.tui.feed import Feed
from spbench.tui.run.rank_source import UPDATE_SECONDS, RankSource
from spbench_core.events.statuses import CaseStatus, RankPhase, RankStatus, RunStatus

_PHASE_BY_STATUS = {
    RankStatus.WAITING: RankPhase.UNFINISHED,
    RankStatus.RUNNING: RankPhase.UNFINISHED,
    RankStatus.OK: RankPhase.DONE,
    RankStatus.ERROR: RankPhase.ERROR,
    RankStatus.LOST: RankPhase.LOST,
}

# The property `is_broken` would take a millisecond for thousands of ranks.
_BROKEN = frozenset(phase for phase in RankPhase if phase.is_broken)
_RAISED = "raised"
_DIED = "died"


def describe_end(case: CaseState | None, rank: int) -> str:
    """Return how a broken rank ended: ``raised``, ``died`` or ``died, launch 3``."""
    recorded = case.measured.ranks.get(rank) if case is not None else None
    if recorded is not None and recorded.error is not None:
        return _RAISED
    if case is None or case.repeats < 2:
        return _DIED
    num_ended = sum(ended_rank == rank for _, ended_rank in case.measured.ended)
    return f"{_DIED}, launch {num_ended + 1}"


class LiveRanks(RankSource):
    """The ranks of the running job in the case that started last."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._feed = feed
        self._rows = feed.rows
        self._state = feed.state
        self._has_run_ended = False
        self._compared_skews: Mapping[int, float] = {}
        self._compared_status: CaseStatus | None = None
        self._slow_ranks: frozenset[int] = frozenset()

    @property
    def case(self) -> CaseState | None:
        return self._rows.case

    def update(self) -> None:
        """Find slow ranks, and update a part of the cached rows."""
        # It has also ended if its controller was killed.
        self._has_run_ended = self._feed.status is not RunStatus.RUNNING
        self._find_slow_ranks()
        super().update()

    def _find_slow_ranks(self) -> None:
        skews = self._rows.skews()
        case = self.case
        status = None if case is None else case.status
        # The skews are another object after each new time of a rank.
        if skews is self._compared_skews and status is self._compared_status:
            return
        self._compared_skews = skews
        self._compared_status = status
        self._slow_ranks = frozenset()
        self._fit_recent_scale()
        if case is not None:
            self._slow_ranks = find_slow_ranks(case, self._rows.times(), skews)

    def coordinate_names(self) -> tuple[CoordinateName, ...]:
        return self._rows.coordinate_names()

    def ranks(self) -> Sequence[int]:
        return self._rows.ranks()

    def stamp(self, rank: int) -> Hashable:
        version = self._rows.version(rank) if rank in self._state.ranks else 0
        return version, self._has_run_ended, rank in self._slow_ranks

    def row(self, rank: int) -> RankRow | None:
        # A table may still ask for ranks of the previous job.
        row = self._rows.row(rank) if rank in self._state.ranks else None
        if row is not None and row.phase is RankPhase.ENDED:  # the word of a finished case
            return replace(row, phase=RankPhase.DONE, activity=RankPhase.DONE.value)
        if row is not None and row.phase in _BROKEN:
            return replace(row, activity=describe_end(self.case, rank))
        if row is not None and self._has_run_ended and not row.phase.is_over:
            return replace(row, phase=RankPhase.UNFINISHED, activity=RankPhase.UNFINISHED.value)
        return row

    def medians(self) -> Mapping[int, float]:
        return self._rows.medians()

    def skews(self) -> Mapping[int, float]:
        return self._rows.skews()

    def slow_ranks(self) -> Collection[int]:
        return self._slow_ranks

    def failed_ranks(self) -> set[int]:
        """Return the failed ranks of the case, or those lost before the first case."""
        if self.case is not None:
            return super().failed_ranks()
        return {rank for rank, state in self._state.ranks.items() if state.phase in _BROKEN}

    def describe_slowness(self) -> str:
        comparison = self._rows.comparison
        if self.case is None or comparison is None:
            return ""
        return describe_slowness(self.case, comparison, self._rows.times(), self._rows.compare())


class RecordedRanks(RankSource):
    """The ranks of a case that is not running; each `update` evaluates some of them."""

    def __init__(self, case: CaseState) -> None:
        super().__init__()
        self._case = case
        self._ranks = sorted(case.measured.known_ranks)
        self._coordinate_names = list_coordinate_names(case.identity.coordinates)
        self._figures: dict[int, RankFigures] = {}
        self._medians: dict[int, float] = {}
        self._comparison = RankComparison(case.identity)
        self._times: dict[int, RankTime] = {}
        self._compared = RankRatios()
        self._slow_ranks: frozenset[int] = frozenset()
        self._slowness = ""
        self._pending: Iterator[int] = iter(self._ranks)
        self._is_compared = False

    @property
    def case(self) -> CaseState:
        return self._case

    @property
    def busy(self) -> bool:
        return not self._is_compared

    def update(self) -> None:
        """Evaluate some more ranks; when all are evaluated, compare them."""
        super().update()
        until = time.monotonic() + UPDATE_SECONDS
        for rank in self._pending:
            self._evaluate(rank)
            if time.monotonic() > until:
                return
        if not self._is_compared:
            self._is_compared = True
            self._compared = self._comparison.compare(self._times)
            self._fit_recent_scale()
            self._slow_ranks = find_slow_ranks(self._case, self._times, self._compared.ratios)
            # Once: whether a case is too short depends on all samples of all ranks.
            self._slowness = describe_slowness(
                self._case, self._comparison, self._times, self._compared
            )

    def _evaluate(self, rank: int) -> None:
        figures = self._figures[rank] = RankFigures(rank, self._case, self._comparison)
        median = figures.take_times()
        if median is not None and figures.time is not None:
            self._medians[rank] = median
            self._times[rank] = figures.time

    def coordinate_names(self) -> tuple[CoordinateName, ...]:
        return self._coordinate_names

    def ranks(self) -> Sequence[int]:
        return self._ranks

    def stamp(self, rank: int) -> Hashable:
        return self._is_compared, rank in self._figures

    def row(self, rank: int) -> RankRow | None:
        recorded = self._case.measured.known_ranks.get(rank)
        if recorded is None:
            return None
        figures = self._figures.get(rank) or RankFigures(rank, self._case)
        phase = _PHASE_BY_STATUS[recorded.status]
        return RankRow(
            rank=rank,
            host=recorded.host,
            coordinates=figures.coordinates,
            phase=phase,
            activity=describe_end(self._case, rank) if phase in _BROKEN else phase.value,
            iterations=len(figures.times),
            last=self._find_last_time(rank),
            p50=figures.p50,
            p95=figures.percentile(0.95),
            p99=figures.percentile(0.99),
            skew=self._compared.ratios.get(rank),
            gb_s=figures.gb_s(self._case.repeats - 1),
            check=figures.check(),
            recent=figures.recent(),
            active=figures.find_compared_time(self._compared),
        )

    def _find_last_time(self, rank: int) -> float | None:
        repeats = self._case.measured.samples.get("time_ms", {}).get(rank)
        values = repeats[max(repeats)] if repeats else None
        return values[-1] if values else None

    def medians(self) -> Mapping[int, float]:
        return self._medians

    def skews(self) -> Mapping[int, float]:
        return self._compared.ratios

    def slow_ranks(self) -> Collection[int]:
        return self._slow_ranks

    def describe_slowness(self) -> str:
        return self._slowness
