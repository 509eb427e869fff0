"""Separate columns for the swept parameters of cases, if a table is wide enough."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spbench.tui.widgets.table_columns import DROPPABLE_PRIORITY, Column, lay_out

_SWEPT = re.compile(r"(?P<name>.*)\[(?P<point>[^\[\]]*=[^\[\]]*)\]")
_MAX_WIDTH = 24
SCROLL_BAR = 1
"""Width of the scroll bar of a table, in cells."""
_PREFIX = "param:"
"""Prefix of the keys of these columns, which avoids clashes with other columns."""


@dataclass(frozen=True, slots=True)
class SweptColumns:
    """The columns of swept parameters, which follow the column of cases.

    Attributes:
        keys: The parameters that have a column, in the order of the ids.
        after: The key of the column of cases.
        widths: The widths of the columns, in cells.
    """

    keys: tuple[str, ...] = ()
    after: str = "case"
    widths: Mapping[str, int] = field(default_factory=dict)

    def columns(self, others: Sequence[Column]) -> list[Column]:
        """Return the other columns with these columns inserted."""
        start = 1 + next(index for index, column in enumerate(others) if column.key == self.after)
        added = [Column(_PREFIX + key, key, self.widths[key]) for key in self.keys]
        return [*others[:start], *added, *others[start:]]

    def cells(self, case: str) -> list[str]:
        """Return the id of a case without parameters in columns, then their values."""
        name, point = _split_id(case)
        remaining = ",".join(
            f"{key}={value}" for key, value in point.items() if key not in self.keys
        )
        shown_id = f"{name}[{remaining}]" if remaining else name
        values = [point.get(key, "") for key in self.keys]
        return [shown_id, *values]

    def sort_value(self, case: str, column: str) -> tuple[bool, float, str] | None:
        """Return the sort key of a case in one of these columns.

        Numbers are sorted by value and come before texts. A case without the parameter has no key.
        """
        text = _split_id(case)[1].get(column.removeprefix(_PREFIX), "")
        if not text:
            return None
        number = _parse_number(text)
        return number is None, number or 0.0, text

    def contains(self, column: str) -> bool:
        """Return whether a column is one of these."""
        return column.startswith(_PREFIX)


NONE_SWEPT = SweptColumns()


def choose_swept_columns(
    cases: Collection[str], others: Sequence[Column], width: int, after: str = "case"
) -> SweptColumns:
    """Return columns for the parameters that differ between cases, if they fit.

    Args:
        cases: The ids of the cases.
        others: The other columns. Columns are left out only if ids would be cut otherwise.
        width: The width of the table, in cells.
        after: The key of the column of cases.
    """
    points = [_split_id(case)[1] for case in cases]
    values_by_key: dict[str, set[str]] = {}
    for point in points:
        for key, value in point.items():
            values_by_key.setdefault(key, set()).add(value)
    keys = tuple(
        key
        for key, key_values in values_by_key.items()
        if len(key_values) > 1 or any(key not in point for point in points)
    )
    widths = {key: min(_MAX_WIDTH, max(map(len, (key, *values_by_key[key])))) for key in keys}
    swept = SweptColumns(keys, after, widths)

    layout_without_swept = lay_out(others, width)
    names = (swept.cells(case)[0] for case in cases)
    name_width = max(map(len, (after, *names)))
    layout_with_swept = lay_out(
        [
            replace(column, width=name_width) if column.key == after else column
            for column in swept.columns(others)
        ],
        width,
    )
    id_width = next(
        placed.width for placed in layout_without_swept.placed if placed.column.key == after
    )
    ids_are_cut = any(len(case) > id_width for case in cases)
    shown_keys = {placed.column.key for placed in layout_with_swept.placed}
    left_out = [
        placed.column
        for placed in layout_without_swept.placed
        if placed.column.key not in shown_keys
    ]
    # Rows with equal, cut ids are worse than the loss of a dispensable column.
    min_drop_priority = (
        DROPPABLE_PRIORITY if ids_are_cut else 1 + max(column.drop_priority for column in others)
    )
    if (
        keys
        and layout_with_swept.width <= width
        and all(column.drop_priority >= min_drop_priority for column in left_out)
    ):
        return swept
    return SweptColumns(after=after)


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _split_id(case: str) -> tuple[str, dict[str, str]]:
    """Return the name of a case, and the text of each swept parameter in its id."""
    match = _SWEPT.fullmatch(case)
    if match is None:
        return case, {}
    pairs = (pair.partition("=") for pair in match["point"].split(","))
    return match["name"], {key: value for key, _, value in pairs}
