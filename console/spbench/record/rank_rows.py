"""One row a rank, as every live view shows it: made again only when something of it has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import count

from spbench.record.case_state import CaseState
from spbench.record.comparison import RankComparison, RankRatios, RankTime, compute_active_times
from spbench.record.coordinates import CoordinateName, list_coordinate_names, shorten_coordinates
from spbench.record.live_samples import LiveSamples
from spbench.record.run_parts import RankState
from spbench.record.state import RunState
from spbench.stats.sorted_samples import SortedRepeats
from spbench.stats.summary import lower_median
from spbench_core.events.fields import Event
from spbench_core.events.statuses import CheckOutcome, RankPhase

_NO_TIMES = SortedRepeats()
MAX_RECENT = 10
"""Times that a row has of those that came last."""


class RankFigures:
    """A rank's times over all repeats so far, its place and its rate.

    Attributes:
        case: The case; None before the rank's first.
        place: Where it stands in the layout, by name: ``{"tile": "0,1"}``.
        times: Its times in ms.
        p50: The median of the repeats' medians; None if there are no times.
        own: Its times in ms without its waits for other ranks; empty if these are not measured.
    """

    __slots__ = (
        *("_known", "_own_taken", "_rate", "_taken", "_waits"),
        *("case", "active", "p50", "coordinates", "rank", "times"),
    )

    def __init__(
        self, rank: int, case: CaseState | None, comparison: RankComparison | None = None
    ) -> None:
        self.rank = rank
        self.case = case
        part = case.measured.ranks.get(rank) if case else None
        self.coordinates = shorten_coordinates(part.coordinates) if part else {}
        self.times = SortedRepeats() if case else _NO_TIMES
        self.p50: float | None = None
        self.active = SortedRepeats()
        self._known: dict[float, float] = {}
        self._taken: dict[int, int] = {}
        self._own_taken: dict[int, int] = {}
        self._waits = comparison.waits if comparison is not None else ()
        metrics = case.identity.metrics.values() if case else ()
        self._rate = next((info.name for info in metrics if info.unit == "GB/s"), None)

    def take_times(self) -> float | None:
        """Take in the times that have come since; return the new median, None where none came."""
        given = self.case.measured.samples.get("time_ms") if self.case else None
        if not given or self.rank not in given:
            return None
        before = len(self.times)
        for repeat, values in given[self.rank].items():
            taken = self._taken.get(repeat, 0)
            if len(values) > taken:
                self.times.add(repeat, values[taken:])
                self._taken[repeat] = len(values)
        waited = self._take_own(given[self.rank])
        if len(self.times) == before:
            return self.p50 if waited else None
        self._known.clear()
        self.p50 = self.times.median()
        return self.p50

    def _take_own(self, repeats: Iterable[int]) -> bool:
        """Take in the times without waits that have come since; return whether any came."""
        before = len(self.active)
        if self.case is None or not self._waits:
            return False
        for repeat in repeats:
            taken = self._own_taken.get(repeat, 0)
            values = compute_active_times(
                self.case, self._waits, self.rank, repeat, slice(taken, None)
            )
            if values:
                self.active.add(repeat, values)
                self._own_taken[repeat] = taken + len(values)
        return len(self.active) > before

    @property
    def time(self) -> RankTime | None:
        """Its medians; None if there are no times."""
        if self.p50 is None:
            return None
        return RankTime(self.p50, self.active.median() if self.active else None)

    def percentile(self, fraction: float) -> float | None:
        """Return a percentile of the times; None where there are none."""
        if fraction not in self._known and self.times:
            self._known[fraction] = self.times.values.percentile(fraction)
        return self._known.get(fraction)

    def recent(self) -> tuple[float, ...]:
        """Return the newest times of the newest repeat."""
        repeats = (
            self.case.measured.samples.get("time_ms", {}).get(self.rank) if self.case else None
        )
        return tuple(repeats[max(repeats)][-MAX_RECENT:]) if repeats else ()

    def gb_s(self, repeat: int) -> float | None:
        """Return the newest value, up to a repeat, of the case's first metric in GB/s."""
        if self.case is None or self._rate is None:
            return None
        repeats = self.case.measured.samples.get(self._rate, {}).get(self.rank)
        if repeats:
            newest = repeats[max(repeats)]
            return newest[-1] if newest else None
        values = self.case.measured.values.get(self._rate)
        while values and repeat >= 0:
            if (repeat, self.rank) in values:
                return values[repeat, self.rank]
            repeat -= 1
        return None

    def check(self) -> CheckOutcome | None:
        """Return the outcome of all its checks taken together; None before the first."""
        passed = self.case.measured.checked.get(self.rank) if self.case else None
        if passed is None:
            return None
        return CheckOutcome.PASSED if passed else CheckOutcome.FAILED


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank in the case it runs, over all repeats so far.

    Attributes:
        place: Where it stands in the layout, by name: ``{"tile": "0,1"}``.
        phase: Its phase.
        activity: Its activity with the progress, ``timing 40/100``, or else its phase.
        iterations: The number of its times.
        last: Its last time in ms.
        p50: The median of its times in ms, then the median of its repeats.
        p95: The 95th percentile of its times in ms, p99 the 99th.
        skew: Its own time over that of the typical rank with the same work.
        recent: Its newest times in ms, `RECENT` of them at most.
        own: The median of its times without waits for other ranks, in ms; None: not measured.
        gb_s: Its last value of the case's first metric in GB/s.
        check: The outcome of all its checks taken together; None before the first.
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

    ``take`` only notes who has changed; a rank's new times are read from the state when a row or
    a median is next asked for. Ranks are compared within the case that was started last.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._versions = count(1)
        self._order: list[int] = []
        self._figures: dict[int, RankFigures] = {}
        self._changed: set[int] = set()
        self._timed: set[int] = set()
        self._changes: dict[int, int] = {}
        self._rows: dict[int, tuple[int, RankRow]] = {}
        self._begun: set[str] = set()
        self._case: CaseState | None = None
        self._medians: dict[int, float] = {}
        self._typical: float | None = None
        self._comparison: RankComparison | None = None
        self._times: dict[int, RankTime] = {}
        self._compared = RankRatios()
        self._stale = False
        self._moved = 0
        self._names: tuple[CoordinateName, ...] | None = None
        self._folded: LiveSamples | None = None
        self._restart()

    def update(self, event: Event) -> None:
        """Note what an event has changed; call it once the state has the event."""
        kind = event["event"]
        rank = event.get("rank")
        if kind == "job_start":
            self._restart()
        elif kind == "case_start" and event["case"] not in self._begun:
            self._compare_in(self._state.cases[event["case"]])
        if rank is not None and kind != "heartbeat":
            self._changed.add(rank)
            if kind == "samples":
                self._timed.add(rank)

    @property
    def case(self) -> CaseState | None:
        """The case in which ranks are compared: the one that was started last."""
        return self._case

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
        known = self._rows.get(rank)
        if known is None or known[0] != version:
            figures = self._figures[rank]
            row = _row(self._state.ranks[rank], figures, self._skew(figures))
            known = self._rows[rank] = (version, row)
        return known[1]

    def version(self, rank: int) -> int:
        """Return a number that grows whenever the rank's row may have changed."""
        self._compare()
        changed = self._changes[rank]
        return changed if self._figures[rank].p50 is None else max(changed, self._moved)

    def iterations(self, rank: int) -> int:
        """Return how many times the rank has given in its case."""
        self._catch_up()
        return len(self._figures[rank].times)

    def coordinate_names(self) -> tuple[CoordinateName, ...]:
        """Return the names that the ranks' places have in the case."""
        if self._names is None:
            self._names = (
                list_coordinate_names(self._case.identity.coordinates) if self._case else ()
            )
        return self._names

    def medians(self) -> Mapping[int, float]:
        """Return the p50 of each rank that has times in the case, in ms."""
        self._catch_up()
        return self._medians

    def times(self) -> Mapping[int, RankTime]:
        """Return the medians of each rank that has times, whole and without waits."""
        self._compare()
        return self._times

    def typical(self) -> float | None:
        """Return the typical rank's p50 in ms; None below two ranks: there is none to compare."""
        self._compare()
        return self._typical

    def headline_time(self) -> float | None:
        """Return the headline time of the case so far in ms, as the case will report it.

        It is the median over iterations of the slowest rank's time, then the median of repeats.
        """
        if self._folded is None:
            return None
        self._folded.update()
        return self._folded.median() if self._folded else None

    def skews(self) -> Mapping[int, float]:
        """Return each rank's own time over that of the typical rank with the same work."""
        self._compare()
        return self._compared.ratios

    @property
    def separates(self) -> bool:
        """Whether a slow rank is distinguished from ranks that wait for it."""
        self._compare()
        return self._comparison is not None and self._comparison.separates(self._times)

    def slowest(self, most: int) -> list[RankRow]:
        """Return the rows of the slowest ranks, the slowest first; less than ``most`` if fewer."""
        medians = self.medians()
        skews = self.skews()
        ranks = nlargest(most, medians, key=lambda rank: (skews.get(rank, 1.0), medians[rank]))
        if len(ranks) < most:
            ranks += [rank for rank in self.ranks() if rank not in medians][: most - len(ranks)]
        return [self.row(rank) for rank in ranks]

    def _restart(self) -> None:
        """Begin with what the state has now: a new job has new ranks."""
        self._figures = {}
        self._rows = {}
        self._changes = {}
        self._order = []
        self._changed = set(self._state.ranks)
        self._begun = {rank.case for rank in self._state.ranks.values() if rank.case}
        cases = [self._state.cases[case] for case in self._begun]
        self._compare_in(max(cases, key=lambda case: case.verdict.started or 0.0, default=None))

    def _compare_in(self, case: CaseState | None) -> None:
        if case is not None:
            self._begun.add(case.id)
        self._case = case
        self._names = None
        self._comparison = RankComparison(case.identity) if case is not None else None
        timed = case is not None and "time_ms" in case.identity.metrics
        self._folded = LiveSamples(case, "time_ms") if case is not None and timed else None
        self._medians = {}
        self._typical = None
        self._stale = False
        self._times = {}
        self._compared = RankRatios()
        self._moved = next(self._versions)

    def _catch_up(self) -> None:
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
        number = rank.rank
        case = self._state.cases.get(rank.case) if rank.case else None
        figures = self._figures.get(number)
        if figures is None or figures.case is not case:
            comparison = self._comparison if case is self._case else None
            figures = self._figures[number] = RankFigures(number, case, comparison)
            timed = True
        median = figures.take_times() if timed else None
        if median is not None and case is self._case:
            self._medians[number] = median
            if figures.time is not None:
                self._times[number] = figures.time
            self._stale = True
        self._changes[number] = next(self._versions)

    def _compare(self) -> None:
        """Compare the ranks again if a median has changed."""
        self._catch_up()
        if self._stale and self._comparison is not None:
            medians = self._medians.values()
            self._typical = lower_median(medians) if len(medians) > 1 else None
            before, self._compared = self._compared, self._comparison.compare(self._times)
            if self._compared.typical != before.typical:
                self._moved = next(self._versions)
            self._stale = False

    def _skew(self, figures: RankFigures) -> float | None:
        return self._compared.ratios.get(figures.rank) if figures.case is self._case else None


def _row(rank: RankState, figures: RankFigures, skew: float | None) -> RankRow:
    return RankRow(
        rank=rank.rank,
        host=rank.host,
        coordinates=figures.coordinates,
        phase=rank.phase,
        activity=f"{rank.shown_phase} {rank.done}/{rank.total}" if rank.total else rank.shown_phase,
        iterations=len(figures.times),
        last=rank.last_ms,
        p50=figures.p50,
        p95=figures.percentile(0.95),
        p99=figures.percentile(0.99),
        skew=skew,
        gb_s=figures.gb_s(rank.repeat),
        check=figures.check(),
        recent=figures.recent(),
        active=figures.active.median() if figures.active else None,
    )
