"""The base class of a table's rows of ranks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from spbench.record.case_state import CaseState
from spbench.record.coordinates import CoordinateName
from spbench.record.rank_figures import find_rate_metric
from spbench.record.rank_rows import RankRow
from spbench.record.stragglers import has_enough_samples
from spbench.tui.run.rank_cells import (
    RecentScale,
    build_rank_cells,
    build_rank_columns,
    build_search_text,
    fit_recent_scale,
    get_rank_sort_value,
)
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.events.statuses import RankStatus

UPDATE_SECONDS = 0.004
"""Longest time of one update, in seconds."""
UPDATES_AFTER_SORT = 10
"""Number of updates that keep the cached rows up to date after their last use."""
_NO_WAITS_NOTE = "no waits: median without waits for slower ranks"


class _CachedCells(NamedTuple):
    stamp: Hashable
    version: int
    cells: list[TableCell | str]


class RankSource(ABC):
    """Ranks for table, strip and charts; a rank that no longer exists has empty cells.

    Cells are built for the rows in view. Sorting and filtering need the rows of all ranks. Since
    thousands of rows take too long to build at once, these come from a cache that each `update`
    refreshes in part.

    Attributes:
        columns: The columns of the table; only `update` changes them.
    """

    def __init__(self) -> None:
        self._cells_cache: dict[int, _CachedCells] = {}
        self._versions = count(1)
        self._row_cache: dict[int, tuple[Hashable, RankRow | None]] = {}
        self._next_index = 0
        self._updates_left = 0
        self._coordinates: tuple[CoordinateName, ...] = ()
        self._has_active_times = False
        self._has_rates = True
        self._recent_scale: RecentScale | None = None
        self.columns: tuple[Column, ...] = build_rank_columns(())

    @abstractmethod
    def coordinate_names(self) -> tuple[CoordinateName, ...]:
        """Return the names of the ranks' coordinates in the case."""

    @property
    @abstractmethod
    def case(self) -> CaseState | None:
        """The case in which the ranks are compared; None before the first one."""

    def update(self) -> None:
        """Update the columns and a part of the cached rows."""
        coordinates = self.coordinate_names()
        case = self.case
        has_active_times = case is not None and any(
            metric.waits for metric in case.identity.metrics.values()
        )
        has_rates = case is not None and find_rate_metric(case) is not None
        columns = build_rank_columns(
            coordinates, with_active_time=has_active_times, with_rate=has_rates
        )
        if columns != self.columns or coordinates != self._coordinates:
            self._coordinates = coordinates
            self._has_active_times = has_active_times
            self._has_rates = has_rates
            self.columns = columns
            self._cells_cache.clear()
        # All rows are cached once in advance: thousands of rows on a key press would take 0.2 s.
        if not self._updates_left and len(self._row_cache) >= len(self.ranks()):
            return
        self._updates_left = max(0, self._updates_left - 1)
        ranks = self.ranks()
        until = time.monotonic() + UPDATE_SECONDS
        for _ in range(len(ranks)):
            self._next_index = (self._next_index + 1) % len(ranks)
            self._refresh_row(ranks[self._next_index])
            if time.monotonic() > until:
                break

    def _refresh_row(self, rank: int) -> RankRow | None:
        cached = self._row_cache.get(rank)
        stamp = self.stamp(rank)
        if cached is None or cached[0] != stamp:
            cached = self._row_cache[rank] = stamp, self.row(rank)
        return cached[1]

    def _get_cached_row(self, rank: int) -> RankRow | None:
        """Return a row that may be slightly out of date."""
        self._updates_left = UPDATES_AFTER_SORT
        cached = self._row_cache.get(rank)
        return self._refresh_row(rank) if cached is None else cached[1]

    @property
    def busy(self) -> bool:
        """Whether another `update` is needed to evaluate all ranks."""
        return False

    @abstractmethod
    def ranks(self) -> Sequence[int]:
        """Return the ranks, ascending."""

    @abstractmethod
    def stamp(self, rank: int) -> Hashable:
        """Return an object that differs after the row of a rank has changed."""

    @abstractmethod
    def row(self, rank: int) -> RankRow | None:
        """Return the row of a rank; None if it does not exist."""

    @abstractmethod
    def medians(self) -> Mapping[int, float]:
        """Return the median time of each rank with times, in ms."""

    @abstractmethod
    def skews(self) -> Mapping[int, float]:
        """Return each rank's own time divided by that of its typical peer.

        The peers of a rank are the ranks with the same work.
        """

    @abstractmethod
    def slow_ranks(self) -> Collection[int]:
        """Return the ranks that are slow by the rules for findings; called often."""

    @abstractmethod
    def describe_slowness(self) -> str:
        """Return which rank is slow and which ranks wait for it, if any."""

    def _fit_recent_scale(self) -> None:
        """Fit the scale of the newest times, after the ranks were compared again."""
        self._recent_scale = fit_recent_scale(self.medians().values())

    def describe_columns(self, shown: Collection[str]) -> str:
        """Return a note on the columns with these keys that need one."""
        notes = [_NO_WAITS_NOTE] if self._has_active_times else []
        if "recent" in shown and self._recent_scale is not None:
            notes.append(self._recent_scale.text)
        return "; ".join(notes)

    def ratios(self) -> list[float | None]:
        """Return the skews as a list by rank, with None for ranks without one.

        With too few samples, no rank has one.
        """
        ranks = self.ranks()
        if self.case is None or not has_enough_samples(self.case):
            return [None] * (ranks[-1] + 1 if ranks else 0)
        return list(map(self.skews().get, range(ranks[-1] + 1 if ranks else 0)))

    def failed_ranks(self) -> set[int]:
        """Return the ranks that failed a check, ended in error or were lost."""
        return set() if self.case is None else find_failed_ranks(self.case)

    def find_culprit(self, failed_ranks: Collection[int]) -> int | None:
        """Return the lost, failed or slowest slow rank; None if no rank has a problem."""
        if failed_ranks and self.case is not None:
            states = self.case.measured.known_ranks
            lost = [
                rank
                for rank in failed_ranks
                if rank in states and states[rank].status is RankStatus.LOST
            ]
            return min(lost or failed_ranks)
        skews = self.skews()
        return max(self.slow_ranks(), key=lambda rank: skews.get(rank, 0.0), default=None)

    def keys(self) -> Sequence[Hashable]:
        """Return the ranks."""
        return self.ranks()

    def version(self, key: Hashable) -> Hashable:
        """Return a version that changes only if a shown cell changes."""
        return self._get_cells(_to_rank(key)).version

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return the cells of a rank."""
        return self._get_cells(_to_rank(key)).cells

    def _get_cells(self, rank: int) -> _CachedCells:
        cached = self._cells_cache.get(rank)
        stamp = self.stamp(rank), self._recent_scale
        if cached is None or cached.stamp != stamp:
            row = self.row(rank)
            cells: list[TableCell | str] = [""] * len(self.columns)
            if row is not None:
                cells = build_rank_cells(
                    row,
                    self._coordinates,
                    with_active_time=self._has_active_times,
                    with_rate=self._has_rates,
                    is_slow=rank in self.slow_ranks(),
                    recent_scale=self._recent_scale,
                )
            if cached is not None and cached.cells == cells:
                version = cached.version
            else:
                version = next(self._versions)
            cached = self._cells_cache[rank] = _CachedCells(stamp, version, cells)
        return cached

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return the sort key of a rank; its row is built only if needed."""
        if column == "rank":
            return key
        if column in ("p50", "skew"):
            # If no ranks do the same work, those with the longest times come first.
            values = (self.skews() if column == "skew" else {}) or self.medians()
            return values.get(_to_rank(key))
        row = self._get_cached_row(_to_rank(key))
        return None if row is None else get_rank_sort_value(row, column)

    def search_text(self, key: Hashable) -> str:
        """Return the text that a filter searches."""
        rank = _to_rank(key)
        row = self._get_cached_row(rank)
        return build_search_text(row, is_slow=rank in self.slow_ranks()) if row else ""


def _to_rank(key: Hashable) -> int:
    assert isinstance(key, int)
    return key


def find_failed_ranks(case: CaseState) -> set[int]:
    """Return the ranks of a case that failed a check, ended in error or were lost."""
    measured = case.measured
    failed = {rank for rank, passed in measured.passed_by_rank.items() if not passed}
    # The property `is_broken` would take a millisecond for thousands of ranks.
    broken = {status for status in RankStatus if status.is_broken}
    return failed | {rank for rank, state in measured.known_ranks.items() if state.status in broken}
