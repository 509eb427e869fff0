"""One row per rank for live views, rebuilt only if something in it has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import count

from spbench.record.case_state import CaseState
from spbench.record.comparison import RankComparison, RankRatios, RankTime
from spbench.record.coordinates import CoordinateName, list_coordinate_names
from spbench.record.rank_figures import RankFigures
from spbench.record.run_parts import RankState
from spbench.record.state import RunState
from spbench.record.timeline import LiveSamples
from spbench.stats.summary import lower_median
from spbench_core.events.fields import Event
from spbench_core.events.statuses import CheckOutcome, RankPhase


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank in its current case, over all repeats so far.

    Attributes:
        coordinates: Its coordinates in the layout, by name: ``{"tile": "0,1"}``.
        phase: Its phase.
        activity: Its activity with the progress, ``timing 40/100``, or else its phase.
        iterations: The number of its times.
        last: Its last time in ms.
        p50: The median of the repeats' medians in ms.
        p95: The 95th percentile of its times in ms.
        p99: The 99th percentile of its times in ms.
        skew: Its active time over that of the typical rank with the same work.
        recent: At most `MAX_RECENT` of its newest times in ms.
        active: Its median without waits for slower ranks in ms; None if waits are not measured.
        gb_s: Its last value of the case's first metric in GB/s.
        check: The combined result of its checks; None before the first.
    """

    rank: int
    host: str
    coordinates: Mapping[str, str]
    phase: RankPhase
    activity: str
    iterations: int
    last: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    skew: float | None
    gb_s: float | None
    check: CheckOutcome | None
    recent: tuple[float, ...] = ()
    active: float | None = None


class RankRows:
    """The rows of the current job's ranks.

    ``update`` only marks changed ranks. Their new times are read from the state when a row or a
    median is requested. Ranks are compared within the case that was started last.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._versions = count(1)
        self._order: list[int] = []
        self._figures: dict[int, RankFigures] = {}
        self._changed: set[int] = set()
        self._timed: set[int] = set()
        self._rank_versions: dict[int, int] = {}
        self._rows: dict[int, tuple[int, RankRow]] = {}
        self._started_cases: set[str] = set()
        self._case: CaseState | None = None
        self._newest_case_id: str | None = None
        self._medians: dict[int, float] = {}
        self._typical: float | None = None
        self._comparison: RankComparison | None = None
        self._times: dict[int, RankTime] = {}
        self._ratios = RankRatios()
        self._stale = False
        self._typical_version = 0
        self._coordinate_names: tuple[CoordinateName, ...] | None = None
        self._live_samples: LiveSamples | None = None
        self._restart()

    def update(self, event: Event) -> None:
        """Mark the rank of an event as changed. Call it once the state has the event."""
        kind = event["event"]
        rank = event.get("rank")
        if kind == "job_start":
            self._restart()
        elif kind == "job_end":
            self._changed.update(self._state.ranks)  # those that had not ended are unfinished
        elif kind == "case_start" and event["case"] not in self._started_cases:
            self._select_case(self._state.cases[event["case"]])
        if rank is not None and kind != "heartbeat":
            self._changed.add(rank)
            if kind == "samples":
                self._timed.add(rank)

    @property
    def case(self) -> CaseState | None:
        """The case in which ranks are compared, which is the one that was started last."""
        return self._case

    @property
    def newest_case(self) -> CaseState | None:
        """The case that was started last, also while the next launch has started none."""
        if self._newest_case_id is None:
            return self._case
        return self._state.cases.get(self._newest_case_id)  # a retry replaces its state

    def ranks(self) -> Sequence[int]:
        """Return the numbers of the current job's ranks, in order."""
        if len(self._order) != len(self._state.ranks):
            self._order = sorted(self._state.ranks)
        return self._order

    def rows(self) -> list[RankRow]:
        """Return the rows of all ranks, by rank."""
        return [self.row(rank) for rank in self.ranks()]

    def row(self, rank: int) -> RankRow:
        """Return the row of one of ``ranks()``."""
        version = self.version(rank)
        cached = self._rows.get(rank)
        if cached is None or cached[0] != version:
            figures = self._figures[rank]
            compared = self._ratios if figures.case is self._case else RankRatios()
            row = _make_row(self._state.ranks[rank], figures, compared)
            cached = self._rows[rank] = (version, row)
        return cached[1]

    def version(self, rank: int) -> int:
        """Return a number that grows whenever the rank's row may have changed."""
        self.compare()
        changed = self._rank_versions[rank]
        return changed if self._figures[rank].p50 is None else max(changed, self._typical_version)

    def iterations(self, rank: int) -> int:
        """Return the number of times that the rank has sent in its case."""
        self._refresh_changed()
        return len(self._figures[rank].times)

    def coordinate_names(self) -> tuple[CoordinateName, ...]:
        """Return the names of the ranks' coordinates in the case."""
        if self._coordinate_names is None:
            self._coordinate_names = (
                list_coordinate_names(self._case.identity.coordinates) if self._case else ()
            )
        return self._coordinate_names

    def medians(self) -> Mapping[int, float]:
        """Return the p50 of each rank with times in the case, in ms."""
        self._refresh_changed()
        return self._medians

    def times(self) -> Mapping[int, RankTime]:
        """Return the medians of each rank with times, in total and without waits."""
        self.compare()
        return self._times

    def typical(self) -> float | None:
        """Return the typical rank's p50 in ms; None with fewer than two ranks."""
        self.compare()
        return self._typical

    def headline_time(self) -> float | None:
        """Return the headline time of the case so far in ms, like the case will report it.

        It is the median over iterations of the slowest rank's time, then the median of repeats.
        """
        if self._live_samples is None:
            return None
        self._live_samples.update()
        return self._live_samples.median() if self._live_samples else None

    def skews(self) -> Mapping[int, float]:
        """Return each rank's active time over that of the typical rank with the same work."""
        return self.compare().ratios

    def compare(self) -> RankRatios:
        """Return the ratios of the ranks, compared again if a median has changed."""
        self._refresh_changed()
        if self._stale and self._comparison is not None:
            medians = self._medians.values()
            self._typical = lower_median(medians) if len(medians) > 1 else None
            previous, self._ratios = self._ratios, self._comparison.compare(self._times)
            if self._ratios.typical != previous.typical:
                self._typical_version = next(self._versions)
            self._stale = False
        return self._ratios

    @property
    def comparison(self) -> RankComparison | None:
        """The comparison of the case's ranks; None before the first case."""
        return self._comparison

    @property
    def separates(self) -> bool:
        """Whether a slow rank is distinguished from ranks that wait for it."""
        self.compare()
        return self._comparison is not None and self._comparison.separates(self._times)

    def slowest(self, max_count: int) -> list[RankRow]:
        """Return the rows of at most ``max_count`` ranks, the slowest first."""
        medians = self.medians()
        skews = self.skews()
        ranks = nlargest(max_count, medians, key=lambda rank: (skews.get(rank, 1.0), medians[rank]))
        if len(ranks) < max_count:
            ranks += [rank for rank in self.ranks() if rank not in medians][
                : max_count - len(ranks)
            ]
        return [self.row(rank) for rank in ranks]

    def _restart(self) -> None:
        """Start again from the state, because a new job has new ranks."""
        self._figures = {}
        self._rows = {}
        self._rank_versions = {}
        self._order = []
        self._changed = set(self._state.ranks)
        self._started_cases = {rank.case for rank in self._state.ranks.values() if rank.case}
        cases = [self._state.cases[case] for case in self._started_cases]
        self._select_case(max(cases, key=lambda case: case.execution.started or 0.0, default=None))

    def _select_case(self, case: CaseState | None) -> None:
        if case is not None:
            self._started_cases.add(case.id)
            self._newest_case_id = case.id
        self._case = case
        self._coordinate_names = None
        self._comparison = RankComparison(case.identity) if case is not None else None
        timed = case is not None and "time_ms" in case.identity.metrics
        self._live_samples = LiveSamples(case, "time_ms") if case is not None and timed else None
        self._medians = {}
        self._typical = None
        self._stale = False
        self._times = {}
        self._ratios = RankRatios()
        self._typical_version = next(self._versions)

    def _refresh_changed(self) -> None:
        if self._changed:
            changed = self._changed
            timed = self._timed
            self._changed = set()
            self._timed = set()
            for number in changed:
                rank = self._state.ranks.get(number)
                if rank is not None:
                    self._refresh(rank, number in timed)

    def _refresh(self, rank: RankState, timed: bool) -> None:
        rank_number = rank.rank
        case = self._state.cases.get(rank.case) if rank.case else None
        figures = self._figures.get(rank_number)
        if figures is None or figures.case is not case:
            comparison = self._comparison if case is self._case else None
            figures = self._figures[rank_number] = RankFigures(rank_number, case, comparison)
            timed = True
        new_median = figures.take_times() if timed else None
        if new_median is not None and case is self._case:
            self._medians[rank_number] = new_median
            if figures.time is not None:
                self._times[rank_number] = figures.time
            self._stale = True
        self._rank_versions[rank_number] = next(self._versions)


def _describe_activity(rank: RankState) -> str:
    """Return the activity with its progress; a rank that was lost makes no progress."""
    if rank.total and rank.phase is RankPhase.WORKING:
        return f"{rank.shown_phase} {rank.done}/{rank.total}"
    return rank.shown_phase


def _make_row(rank: RankState, figures: RankFigures, compared: RankRatios) -> RankRow:
    return RankRow(
        rank=rank.rank,
        host=rank.host,
        coordinates=figures.coordinates,
        phase=rank.phase,
        activity=_describe_activity(rank),
        iterations=len(figures.times),
        last=rank.last_ms,
        p50=figures.p50,
        p95=figures.percentile(0.95),
        p99=figures.percentile(0.99),
        skew=compared.ratios.get(rank.rank),
        gb_s=figures.gb_s(rank.repeat),
        check=figures.check(),
        recent=figures.recent(),
        active=figures.find_compared_time(compared),
    )
