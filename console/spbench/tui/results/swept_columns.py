"""Swept parameters of cases as columns of their own, where a table has room for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spbench.report.text_tables import drop_parameter_names
from spbench.tui.cells import FULL_IDS_WIDTH
from spbench.tui.widgets.table_columns import Column, lay_out

_SWEPT = re.compile(r"(?P<name>.*)\[(?P<point>[^\[\]]*=[^\[\]]*)\]")
_WIDEST = 24
SCROLL_BAR = 1
"""Cells of a table that its columns do not have."""
DISPENSABLE = 2
"""The least rank of columns that these may take the place of, where ids would be cut."""
_PREFIX = "param:"
"""The beginning of the columns' keys, so that none is that of another column."""


@dataclass(frozen=True, slots=True)
class SweptColumns:
    """The columns of what differs from case to case, after the one of the case's name.

    Attributes:
        keys: The parameters that have a column, in the order of the ids.
        after: The key of the column of cases, behind which they stand.
        widths: The cells of each column.
        short: Whether ids are written without the keys of what is swept, where there is no column.
    """

    keys: tuple[str, ...] = ()
    after: str = "case"
    widths: Mapping[str, int] = field(default_factory=dict)
    short_ids: bool = False

    def columns(self, others: Sequence[Column]) -> list[Column]:
        """Return these columns among others."""
        place = 1 + next(at for at, column in enumerate(others) if column.key == self.after)
        own = [Column(_PREFIX + key, key, self.widths[key]) for key in self.keys]
        return [*others[:place], *own, *others[place:]]

    def cells(self, case: str) -> list[str]:
        """Return the name of a case without what has a column, and then the cells of those."""
        name, point = _split(case)
        left = ",".join(f"{key}={value}" for key, value in point.items() if key not in self.keys)
        shown = f"{name}[{left}]" if left else name
        own = [point.get(key, "") for key in self.keys]
        return [drop_parameter_names(shown) if self.short_ids else shown, *own]

    def sort_value(self, case: str, column: str) -> str | None:
        """Return what a case is sorted by in one of these columns; whole numbers by their size."""
        value = _split(case)[1].get(column.removeprefix(_PREFIX), "")
        return value.rjust(_WIDEST) if value.isdigit() else value or None

    def contains(self, column: str) -> bool:
        """Whether a column is one of these."""
        return column.startswith(_PREFIX)


NONE_SWEPT = SweptColumns()


def choose_swept_columns(
    cases: Collection[str], others: Sequence[Column], room: int, after: str = "case"
) -> SweptColumns:
    """Return the columns for what differs among these cases; none where they would not fit.

    Args:
        cases: The ids of the cases.
        others: The other columns of the table; where ids have room, none is lost for these.
        room: The width of the table in cells.
        after: The key of the column of cases.
    """
    points = [_split(case) for case in cases]
    values: dict[str, dict[str, None]] = {}
    for _, point in points:
        for key, value in point.items():
            values.setdefault(key, {})[value] = None
    keys = tuple(
        key
        for key, found in values.items()
        if len(found) > 1 or any(key not in point for _, point in points)
    )
    widths = {key: min(_WIDEST, max(map(len, (key, *values[key])))) for key in keys}
    found = SweptColumns(keys, after, widths)
    wider = lay_out(found.columns(others), room)
    before = lay_out(others, room)
    width = next(place.width for place in before.placed if place.column.key == after)
    cut = any(len(case) > width for case in cases)
    kept = {place.column.key for place in wider.placed}
    lost = [place.column for place in before.placed if place.column.key not in kept]
    # Rows that cannot be told apart are worse than a column less.
    most = DISPENSABLE if cut else 1 + max(column.rank for column in others)
    if keys and wider.width <= room and all(column.rank >= most for column in lost):
        return found
    return SweptColumns(after=after, short_ids=cut or room < FULL_IDS_WIDTH)


def _split(case: str) -> tuple[str, dict[str, str]]:
    found = _SWEPT.fullmatch(case)
    if found is None:
        return case, {}
    pairs = (pair.partition("=") for pair in found["point"].split(","))
    return found["name"], {key: value for key, _, value in pairs}
