"""The ranks of the job that runs now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spbench.record.case_state import CaseState
from spbench.record.rank_rows import RankRow
from spbench.tui.feed import Feed
from spbench.tui.run.rank_source import RankSource


class LiveRanks(RankSource):
    """The running job's ranks in the case that was started last; the feed keeps them up to date."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._rows = feed.rows
        self._state = feed.state

    @property
    def case(self) -> CaseState | None:
        return self._rows.case

    def ranks(self) -> Sequence[int]:
        return self._rows.ranks()

    def stamp(self, rank: int) -> int:
        return self._rows.version(rank) if rank in self._state.ranks else 0

    def row(self, rank: int) -> RankRow | None:
        # A table may still ask for the ranks of the job before.
        return self._rows.row(rank) if rank in self._state.ranks else None

    def medians(self) -> Mapping[int, float]:
        return self._rows.medians()

    def typical(self) -> float | None:
        return self._rows.typical()
