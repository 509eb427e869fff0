"""A rank's row as cells: the same columns for ranks that run and for those of a judged case."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from spbench.record.comparison import NOTABLE_RANK
from spbench.record.coordinates import CoordinateName, describe_coordinates
from spbench.record.number_formatting import format_factor, format_rate, format_time
from spbench.record.rank_rows import MAX_RECENT, RankRow
from spbench.tui.cells import format_time_cell, status_cell
from spbench.tui.widgets.glyphs import sparkline
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.events.statuses import RankPhase

_RANK = Column("rank", "rank", 5, "right")
_HOST = Column("host", "host", 9, rank=2)
_AFTER = (
    Column("phase", "phase", 14, rank=1),
    Column("iterations", "iters", 7, "right", rank=5),
    Column("last", "last", 8, "right", rank=7),
    Column("recent", "recent", MAX_RECENT, rank=8),
    Column("p50", "median", 8, "right"),
    Column("p95", "p95", 8, "right", rank=6),
    Column("p99", "p99", 8, "right", rank=3),
    Column("skew", "skew", 10),
    Column("gb_s", "bandwidth", 9, "right", rank=5),
    Column("check", "check", 8),
)
_OWN = Column("own", "own", 8, "right", rank=8)
_NUMBERS = re.compile(r"\d+")
_PHASES = {
    **dict.fromkeys((RankPhase.ERROR, RankPhase.LOST), "error"),
    **dict.fromkeys((RankPhase.ENDED, RankPhase.DONE), "muted"),
    RankPhase.UNFINISHED: "slow",
}
PLACE_PREFIX = "place."
"""How the keys of columns begin that are parts of the ranks' places."""


def rank_columns(places: Sequence[CoordinateName], *, own: bool = False) -> tuple[Column, ...]:
    """Return the columns of ranks whose places have these names.

    Where there is little room, those go first in which all ranks are alike.

    Args:
        places: The names of the places.
        own: Whether the times of ranks without waits for others are measured.
    """
    *others, last = [_HOST, *map(_place_column, places)]
    columns = [_RANK, *others, replace(last, flexible=True)]
    for column in _AFTER:
        columns += [column, _OWN] if own and column.key == "p50" else [column]
    return tuple(columns)


def _place_column(place: CoordinateName) -> Column:
    width = max(len(place.name), place.width)
    return Column(PLACE_PREFIX + place.name, place.name, width, rank=4 if place.differs else 7)


def empty_cells(places: Sequence[CoordinateName], *, own: bool = False) -> list[TableCell | str]:
    """Return the cells of a rank that is not there."""
    return [""] * len(rank_columns(places, own=own))


def rank_cells(
    row: RankRow, places: Sequence[CoordinateName], *, own: bool = False
) -> list[TableCell | str]:
    """Return the cells of a row, in the order of `rank_columns`."""
    return [
        str(row.rank),
        row.host,
        *(row.coordinates.get(place.name, "") for place in places),
        TableCell(row.activity, _PHASES.get(row.phase, "")),
        str(row.iterations or ""),
        format_time_cell(row.last),
        TableCell(sparkline(row.recent, MAX_RECENT) if row.recent else "", "muted"),
        format_time_cell(row.p50),
        *([format_time_cell(row.active)] if own else []),
        *(format_time_cell(value) for value in (row.p95, row.p99)),
        _skew(row.skew),
        "" if row.gb_s is None else format_rate(row.gb_s),
        status_cell(row.check) if row.check else "",
    ]


def _skew(skew: float | None) -> TableCell | str:
    if skew is None:
        return ""
    if is_slow(skew):
        return TableCell(f"{format_factor(skew)} slow", "slow")
    return format_factor(skew)


def place_sort_value(row: RankRow, name: str) -> tuple[tuple[int, ...], str] | None:
    """Return what ranks are sorted by in a column of their places: 0,10 comes after 0,9."""
    text = row.coordinates.get(name)
    return None if text is None else (tuple(map(int, _NUMBERS.findall(text))), text)


def is_slow(skew: float | None) -> bool:
    """Whether a rank is so slow that it is named."""
    return skew is not None and skew >= NOTABLE_RANK


def filter_text(row: RankRow) -> str:
    """Return what a filter looks in: ``rank 7 node03 tile 0,1 timing slow failed``."""
    slow = "slow" if is_slow(row.skew) else ""
    place = describe_coordinates(row.coordinates)
    return f"rank {row.rank} {row.host} {place} {row.activity} {slow} {row.check or ''}".lower()


def describe_row(row: RankRow) -> str:
    """Return a row as one line for the clipboard, figures with their names and units."""
    figures = {
        "last": row.last,
        "median": row.p50,
        "own": row.active,
        "p95": row.p95,
        "p99": row.p99,
    }
    times = [f"{name} {format_time(value)}" for name, value in figures.items() if value is not None]
    where = (f"rank {row.rank} on {row.host}", describe_coordinates(row.coordinates))
    parts = (*where, row.activity, f"{row.iterations} iterations")
    skew = f"skew {format_factor(row.skew)}" if row.skew is not None else ""
    rate = format_rate(row.gb_s) if row.gb_s is not None else ""
    check = f"checks {row.check}" if row.check else ""
    return ", ".join(part for part in (*parts, *times, skew, rate, check) if part)
