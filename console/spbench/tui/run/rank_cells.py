"""The columns and cells of a rank, for running and for finished cases."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from spbench.record.comparison import NOTABLE_RANK
from spbench.record.coordinates import CoordinateName, describe_coordinates
from spbench.record.number_formatting import format_factor, format_rate, format_time
from spbench.record.rank_figures import MAX_RECENT
from spbench.record.rank_rows import RankRow
from spbench.record.stragglers import MIN_BLOCKS
from spbench.tui.cells import PRELIMINARY, format_time_cell, make_status_cell
from spbench.tui.widgets.glyphs import render_sparkline
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.events.statuses import CheckOutcome, RankPhase

_RANK = Column("rank", "rank", 5, "right")
_HOST = Column("host", "host", 9, drop_priority=2)
_COLUMNS_AFTER_COORDINATES = (
    Column("phase", "phase", 14, drop_priority=1),
    Column("iterations", "iters", 6, "right", drop_priority=6),
    Column("last", "last", 8, "right", drop_priority=6),
    Column("recent", "recent", MAX_RECENT, drop_priority=8),
    Column("p50", "median", 8, "right"),
    Column("p95", "p95", 8, "right", drop_priority=5),
    Column("p99", "p99", 8, "right", drop_priority=4),
    Column("skew", "skew", 10),
    Column("gb_s", "bandwidth", 9, "right", drop_priority=7),
    Column("check", "check", 8),
)
_ACTIVE_TIME = Column("active", "no waits", 8, "right")
"""Always shown if it is measured: without it, all ranks of a coupled case look equally slow."""
_RECENT_MARGIN = 0.25
"""The share of the medians by which the scale of the newest times exceeds them at both ends."""
_NUMBERS = re.compile(r"\d+")
_STYLE_BY_PHASE = {
    **dict.fromkeys((RankPhase.ERROR, RankPhase.LOST), "error"),
    **dict.fromkeys((RankPhase.ENDED, RankPhase.DONE), "muted"),
    RankPhase.UNFINISHED: "slow",
}
_SORT_VALUES: Mapping[str, Callable[[RankRow], Any]] = {
    "rank": lambda row: row.rank,
    "host": lambda row: row.host or None,
    "phase": lambda row: row.phase,
    "iterations": lambda row: row.iterations,
    "last": lambda row: row.last,
    "recent": lambda row: row.recent,
    "p50": lambda row: row.p50,
    "active": lambda row: row.active,
    "p95": lambda row: row.p95,
    "p99": lambda row: row.p99,
    "skew": lambda row: row.skew,
    "gb_s": lambda row: row.gb_s,
    "check": lambda row: row.check,
}
_COORDINATE_PREFIX = "coordinate."
"""Prefix of the keys of columns that show a coordinate of the ranks."""


class RecentScale(NamedTuple):
    """The ends of the bars in the column of the newest times, in ms."""

    low: float
    high: float

    @property
    def text(self) -> str:
        """The ends in words."""
        return f"recent: bars from {format_time(self.low)} to {format_time(self.high)}"


def fit_recent_scale(medians: Collection[float]) -> RecentScale | None:
    """Return one scale for the newest times of all ranks; None without medians.

    It begins near the fastest rank's median, so that slower ranks have visibly higher bars.
    Rounded ends change seldom while times come in.
    """
    if not medians:
        return None
    low = (1 - _RECENT_MARGIN) * min(medians)
    high = (1 + _RECENT_MARGIN) * max(medians)
    return RecentScale(float(f"{low:.1e}"), float(f"{high:.1e}"))


def build_rank_columns(
    coordinates: Sequence[CoordinateName],
    *,
    with_active_time: bool = False,
    with_rate: bool = True,
) -> tuple[Column, ...]:
    """Return the columns of ranks with these coordinates.

    In a narrow table, columns with equal values for all ranks are left out first.

    Args:
        coordinates: The names of the coordinates.
        with_active_time: Whether times without waits for slower ranks are measured.
        with_rate: Whether the case has a metric in GB/s.
    """
    *others, last = [_HOST, *map(_make_coordinate_column, coordinates)]
    columns = [_RANK, *others, replace(last, flexible=True)]
    for column in _COLUMNS_AFTER_COORDINATES:
        if column.key == "gb_s" and not with_rate:
            continue
        columns += [column, _ACTIVE_TIME] if with_active_time and column.key == "p50" else [column]
    return tuple(columns)


def _make_coordinate_column(coordinate: CoordinateName) -> Column:
    width = max(len(coordinate.name), coordinate.width)
    return Column(
        _COORDINATE_PREFIX + coordinate.name,
        coordinate.name,
        width,
        drop_priority=3 if coordinate.differs else 6,
    )


def build_rank_cells(
    row: RankRow,
    coordinates: Sequence[CoordinateName],
    *,
    with_active_time: bool = False,
    with_rate: bool = True,
    is_slow: bool = False,
    recent_scale: RecentScale | None = None,
) -> list[TableCell | str]:
    """Return the cells of a row, in the order of `build_rank_columns`.

    Args:
        row: The row.
        coordinates: The names of the coordinates.
        with_active_time: Whether times without waits for slower ranks are measured.
        with_rate: Whether the case has a metric in GB/s.
        is_slow: Whether the rank is slow by the rules of `slowness`.
        recent_scale: The scale of the newest times of all ranks.
    """
    return [
        str(row.rank),
        row.host,
        *(row.coordinates.get(coordinate.name, "") for coordinate in coordinates),
        TableCell(row.activity, _STYLE_BY_PHASE.get(row.phase, "")),
        str(row.iterations or ""),
        format_time_cell(row.last),
        TableCell(_render_recent(row, recent_scale), "muted"),
        format_time_cell(row.p50),
        *([format_time_cell(row.active)] if with_active_time else []),
        *(format_time_cell(value) for value in (row.p95, row.p99)),
        _make_skew_cell(row, is_slow=is_slow),
        *(["" if row.gb_s is None else format_rate(row.gb_s)] if with_rate else []),
        _make_check_cell(row),
    ]


def _render_recent(row: RankRow, scale: RecentScale | None) -> str:
    if not row.recent or scale is None:
        return ""
    return render_sparkline(row.recent, MAX_RECENT, scale.high, minimum=scale.low)


def _make_check_cell(row: RankRow) -> TableCell | str:
    """Return the checks of a rank; passed ones are muted if it was lost."""
    if row.check is None:
        return ""
    cell = make_status_cell(row.check)
    is_cut_short = row.phase in (RankPhase.ERROR, RankPhase.LOST, RankPhase.UNFINISHED)
    if is_cut_short and row.check == CheckOutcome.PASSED:
        return TableCell(cell.text, "muted")
    return cell


def _make_skew_cell(row: RankRow, *, is_slow: bool) -> TableCell | str:
    """Return the skew of a rank, or a dash if no other rank does the same work.

    Until the rank has as many times as a straggler needs, it is muted, and preliminary while the
    rank runs.
    """
    skew = row.skew
    if skew is None:
        return "" if row.p50 is None else TableCell("-", "muted")
    if is_slow:
        # The skew of a rank that was slow only in a part of the case does not show it.
        text = "slow part" if skew < NOTABLE_RANK else f"{format_factor(skew)} slow"
        return TableCell(text, "slow")
    if row.iterations < MIN_BLOCKS:
        has_ended = row.phase.is_over or row.phase is RankPhase.UNFINISHED
        return TableCell(f"{'' if has_ended else PRELIMINARY}{format_factor(skew)}", "muted")
    return format_factor(skew)


def get_rank_sort_value(row: RankRow, column: str) -> Any:
    """Return the sort key of a row in a column; None if the row has no value there."""
    get_value = _SORT_VALUES.get(column)
    if get_value is not None:
        return get_value(row)
    return _get_coordinate_sort_value(row, column.removeprefix(_COORDINATE_PREFIX))


def _get_coordinate_sort_value(row: RankRow, name: str) -> tuple[tuple[int, ...], str] | None:
    """Return the sort key of a coordinate; 0,10 comes after 0,9."""
    text = row.coordinates.get(name)
    return None if text is None else _parse_coordinate(text)


@lru_cache(maxsize=1 << 14)
def _parse_coordinate(text: str) -> tuple[tuple[int, ...], str]:
    return tuple(map(int, _NUMBERS.findall(text))), text


def build_search_text(row: RankRow, *, is_slow: bool = False) -> str:
    """Return the text for a filter: ``rank 7 node03 tile 0,1 timing slow failed``."""
    slow = "slow" if is_slow else ""
    coordinates = describe_coordinates(row.coordinates)
    return (
        f"rank {row.rank} {row.host} {coordinates} {row.activity} {slow} {row.check or ''}".lower()
    )


def describe_row(row: RankRow) -> str:
    """Return a row as one line of text, values with their names and units."""
    ms_by_name = {
        "last": row.last,
        "median": row.p50,
        "without waits": row.active,
        "p95": row.p95,
        "p99": row.p99,
    }
    time_texts = [f"{name} {format_time(ms)}" for name, ms in ms_by_name.items() if ms is not None]
    location = (f"rank {row.rank} on {row.host}", describe_coordinates(row.coordinates))
    parts = (*location, row.activity, f"{row.iterations} iterations")
    skew = f"skew {format_factor(row.skew)}" if row.skew is not None else ""
    rate = format_rate(row.gb_s) if row.gb_s is not None else ""
    check = f"checks {row.check}" if row.check else ""
    return ", ".join(part for part in (*parts, *time_texts, skew, rate, check) if part)
