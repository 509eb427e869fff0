"""The ranks of the job that runs now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spbench.record.case_state import CaseState
from spbench.record.coordinates import CoordinateName
from spbench.record.rank_rows import RankRow
from spbench.tui.feed import Feed
from spbench.tui.run.rank_source import RankSource
from spbench_core.events.statuses import RankPhase, RunStatus


class LiveRanks(RankSource):
    """The running job's ranks in the case that was started last; the feed keeps them up to date."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._feed = feed
        self._rows = feed.rows
        self._state = feed.state

    @property
    def case(self) -> CaseState | None:
        return self._rows.case

    def place_names(self) -> tuple[CoordinateName, ...]:
        return self._rows.coordinate_names()

    def ranks(self) -> Sequence[int]:
        return self._rows.ranks()

    def stamp(self, rank: int) -> int:
        version = self._rows.version(rank) if rank in self._state.ranks else 0
        return version + self._left

    def row(self, rank: int) -> RankRow | None:
        # A table may still ask for the ranks of the job before.
        row = self._rows.row(rank) if rank in self._state.ranks else None
        if row is not None and self._left and not row.phase.is_over:
            return replace(row, phase=RankPhase.UNFINISHED, activity=RankPhase.UNFINISHED.value)
        return row

    @property
    def _left(self) -> bool:
        """Whether a killed console has left the ranks as they were; no event comes any more."""
        return self._feed.status == RunStatus.UNFINISHED

    def medians(self) -> Mapping[int, float]:
        return self._rows.medians()

    def skews(self) -> Mapping[int, float]:
        return self._rows.skews()
