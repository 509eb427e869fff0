"""The ranks of a case as rows of a table: as they run, or as the case has left them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from spbench.record.case_state import CaseState
from spbench.record.coordinates import CoordinateName
from spbench.record.rank_rows import RankRow
from spbench.tui.run.rank_cells import (
    PLACE_PREFIX,
    empty_cells,
    filter_text,
    place_sort_value,
    rank_cells,
    rank_columns,
)
from spbench.tui.widgets.table_columns import Column, TableCell

UPDATE_SECONDS = 0.004
"""Seconds that one look may take."""
UPDATES_AFTER_SORT = 10
"""Looks for which rows are kept up to date after the last time that they were sorted by."""


class _Drawn(NamedTuple):
    stamp: int
    version: int
    cells: list[TableCell | str]


class RankSource(ABC):
    """Ranks for table, strip and charts; a rank that is not there any more has empty cells.

    Attributes:
        columns: The table's columns; they change when ranks are looked at, never in between.
    """

    def __init__(self) -> None:
        self._drawn: dict[int, _Drawn] = {}
        self._versions = count(1)
        self._kept: dict[int, tuple[int, RankRow | None]] = {}
        self._turn = 0
        self._wanted = 0
        self._names: tuple[CoordinateName, ...] = ()
        self._own = False
        self.columns: tuple[Column, ...] = rank_columns(())

    @abstractmethod
    def place_names(self) -> tuple[CoordinateName, ...]:
        """Return the names that the ranks' places have in the case."""

    @property
    @abstractmethod
    def case(self) -> CaseState | None:
        """The case in which the ranks are compared; None before there is one."""

    def update(self) -> None:
        """Bring up to date columns, and for sorting and filtering thousands of rows in portions."""
        names = self.place_names()
        case = self.case
        own = case is not None and any(info.waits for info in case.identity.metrics.values())
        if (names, own) != (self._names, self._own):
            self._names = names
            self._own = own
            self.columns = rank_columns(names, own=own)
            self._drawn.clear()
        # All are kept once before anybody asks: thousands at a key's press take 0.2 s.
        if not self._wanted and len(self._kept) >= len(self.ranks()):
            return
        self._wanted = max(0, self._wanted - 1)
        ranks = self.ranks()
        until = time.monotonic() + UPDATE_SECONDS
        for _ in range(len(ranks)):
            self._turn = (self._turn + 1) % len(ranks)
            self._keep(ranks[self._turn])
            if time.monotonic() > until:
                break

    def _keep(self, rank: int) -> RankRow | None:
        known = self._kept.get(rank)
        stamp = self.stamp(rank)
        if known is None or known[0] != stamp:
            known = self._kept[rank] = stamp, self.row(rank)
        return known[1]

    def _kept_row(self, rank: int) -> RankRow | None:
        """A row that may be of a moment ago: all rows anew would take too long."""
        self._wanted = UPDATES_AFTER_SORT
        return self._kept[rank][1] if rank in self._kept else self._keep(rank)

    @property
    def busy(self) -> bool:
        """Whether some ranks have no figures yet, and looking again brings more."""
        return False

    @abstractmethod
    def ranks(self) -> Sequence[int]:
        """Return the ranks' numbers, in order."""

    @abstractmethod
    def stamp(self, rank: int) -> int:
        """Return a number that grows when the rank's row changes."""

    @abstractmethod
    def row(self, rank: int) -> RankRow | None:
        """Return a rank's row; None where there is no such rank."""

    @abstractmethod
    def medians(self) -> Mapping[int, float]:
        """Return the p50 of each rank that has times, in ms."""

    @abstractmethod
    def skews(self) -> Mapping[int, float]:
        """Return each rank's own time over that of the typical rank with the same work."""

    def ratios(self) -> list[float | None]:
        """Return the same at the rank's number; None for a rank that is not compared."""
        ranks = self.ranks()
        return list(map(self.skews().get, range(ranks[-1] + 1 if ranks else 0)))

    def failed_ranks(self) -> set[int]:
        """Return the ranks that failed a check, ended in error or were lost."""
        if self.case is None:
            return set()
        unequal = {rank for rank, passed in self.case.measured.checked.items() if not passed}
        return unequal | {
            number for number, rank in self.case.measured.ranks.items() if rank.status.is_broken
        }

    # What a table asks for

    def keys(self) -> Sequence[Hashable]:
        """Return the ranks."""
        return self.ranks()

    def version(self, key: Hashable) -> Hashable:
        """Return what changes with the cells: a row that only differs unseen is not drawn again."""
        return self._draw(_rank(key)).version

    def cells(self, key: Hashable) -> Sequence[TableCell | str]:
        """Return a rank's cells."""
        return self._draw(_rank(key)).cells

    def _draw(self, rank: int) -> _Drawn:
        known = self._drawn.get(rank)
        stamp = self.stamp(rank)
        if known is None or known.stamp != stamp:
            row = self.row(rank)
            names = self._names
            own = self._own
            cells = rank_cells(row, names, own=own) if row else empty_cells(names, own=own)
            same = known is not None and known.cells == cells
            version = known.version if known and same else next(self._versions)
            known = self._drawn[rank] = _Drawn(stamp, version, cells)
        return known

    def sort_value(self, key: Hashable, column: str) -> Any:
        """Return what a rank is sorted by; its row is made only where that is needed."""
        if column == "rank":
            return key
        if column in ("p50", "skew"):
            # If no ranks do the same work, those with the longest times come first.
            values = (self.skews() if column == "skew" else {}) or self.medians()
            return values.get(_rank(key))
        row = self._kept_row(_rank(key))
        if row is None:
            return None
        if column.startswith(PLACE_PREFIX):
            return place_sort_value(row, column.removeprefix(PLACE_PREFIX))
        value = getattr(row, column)
        return None if value == "" else value

    def text(self, key: Hashable) -> str:
        """Return what a filter looks in."""
        row = self._kept_row(_rank(key))
        return filter_text(row) if row else ""


def _rank(key: Hashable) -> int:
    assert isinstance(key, int)
    return key
