"""One row a rank, as every live view shows it."""

from __future__ import annotations

from dataclasses import dataclass

from spbench.record.case_state import CaseState
from spbench.record.state import RankState, RunState
from spbench.record.statistics import Summary, summarize, typical


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank in the case it runs. Times in ms; ``skew`` is its p50 over the typical rank's."""

    rank: int
    host: str
    place: str
    phase: str
    last: float | None
    times: Summary | None
    skew: float | None
    check: str


class RankRows:
    """Makes the rows; a rank's statistics are made again only when it has new samples."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._known: dict[int, tuple[str, int, Summary | None]] = {}

    def rows(self) -> list[RankRow]:
        """Return the rows of the current job's ranks, by rank."""
        ranks = [self._state.ranks[number] for number in sorted(self._state.ranks)]
        times = {rank.rank: self._times(rank) for rank in ranks}
        medians = [summary.p50 for summary in times.values() if summary]
        middle = typical(medians) if len(medians) > 1 else 0.0
        return [self._row(rank, times[rank.rank], middle) for rank in ranks]

    def _case(self, rank: RankState) -> CaseState | None:
        return self._state.cases.get(rank.case) if rank.case else None

    def _times(self, rank: RankState) -> Summary | None:
        case = self._case(rank)
        if case is None:
            return None
        count = case.rank_count(rank.rank)
        known = self._known.get(rank.rank)
        if known is None or known[:2] != (case.id, count):
            summary = summarize(case.rank_times(rank.rank))
            known = self._known[rank.rank] = (case.id, count, summary)
        return known[2]

    def _row(self, rank: RankState, times: Summary | None, middle: float) -> RankRow:
        case = self._case(rank)
        part = case.ranks.get(rank.rank) if case else None
        place = " ".join(f"{key} {value}" for key, value in part.place.items()) if part else ""
        return RankRow(
            rank=rank.rank,
            host=rank.host,
            place=place,
            phase=_phase(rank),
            last=rank.last_ms,
            times=times,
            skew=times.p50 / middle if times and middle > 0 else None,
            check=_check(case, rank.rank),
        )


def _phase(rank: RankState) -> str:
    """What the rank does, and how far it is: ``timing 40/100``."""
    return f"{rank.phase} {rank.done}/{rank.total}" if rank.total else rank.phase


def _check(case: CaseState | None, rank: int) -> str:
    """``passed``, ``failed`` or nothing yet: all checks of the rank taken together."""
    if case is None:
        return ""
    told = [
        result.passed
        for results in case.checks.values()
        for (_, owner), result in results.items()
        if owner == rank
    ]
    return "" if not told else "passed" if all(told) else "failed"
