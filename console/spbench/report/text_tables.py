"""Plain text tables and paragraphs of a given width."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from spbench.record.number_formatting import replace_controls

PIPE_WIDTH = 120
"""Columns of output that is not written to a terminal."""
MIN_WIDTH = 60
"""Narrower terminals wrap the lines."""
_GAP = 2
_MIN_TEXT = 24
"""The least width of paragraphs, in columns."""
_MIN_ID = 12
"""The least width of shortened ids, in columns."""
_NO_BREAK = "\u00a0"
_BEFORE_UNIT = re.compile(
    r"(?<=\d) (?=(?:[pnum]?s|min|h|%|[kMGTP]?i?B|[kMGTP]?FLOP|images|cases?|launches)(?![a-z]))"
)
"""The space between a number and its unit, at which no line ends."""
ELLIPSIS = "…"
_PARAMETER_NAME = re.compile(r"(?<=[\[,])[^=,\[\]]+=")


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of a table.

    Attributes:
        right: Whether its cells are aligned to the right.
        ids: Whether it has case ids, which are shortened first.
        optional: Whether it is omitted if it is empty, or if the table with shortened ids is still
            too wide.
        drop_priority: The optional column with the highest priority is omitted first, and among
            equal ones the rightmost.
    """

    title: str
    right: bool = False
    ids: bool = False
    optional: bool = False
    drop_priority: int = 0


def align_columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return one line per row; columns in ``right`` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def align_and_wrap(
    rows: Sequence[Sequence[str]], width: int, right: Collection[int] = ()
) -> list[str]:
    """Return rows like `align_columns`, with their last cells wrapped at ``width``."""
    first_widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    last_width = max(width - sum(first_widths) - _GAP * len(first_widths), _MIN_ID)
    wrapped_rows: list[Sequence[str]] = []
    for *cells, last in rows:
        first_line, *other_lines = list(_wrap(last, last_width)) or [""]
        wrapped_rows.append((*cells, first_line))
        wrapped_rows += [(*[""] * len(cells), other_line) for other_line in other_lines]
    return align_columns(wrapped_rows, right)


def render_table(
    columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int
) -> list[str]:
    """Return a heading and one line for each row, none longer than ``width``.

    Args:
        columns: The columns from left to right, one of them with ids.
        rows: One cell for each column.
        width: The columns of the terminal.
    """
    cells = [[replace_controls(cell) for cell in row] for row in rows]
    shown_indices = [
        index
        for index, column in enumerate(columns)
        if not column.optional or any(row[index] for row in cells)
    ]
    id_index = next(index for index, column in enumerate(columns) if column.ids)
    case_ids = [row[id_index] for row in cells]
    id_width = _compute_id_width(columns, cells, shown_indices, width)
    optional_indices = [index for index in shown_indices if columns[index].optional]
    for index in sorted(
        optional_indices, key=lambda index: (columns[index].drop_priority, index), reverse=True
    ):
        if _are_distinct(case_ids, id_width):
            break
        shown_indices.remove(index)
        id_width = _compute_id_width(columns, cells, shown_indices, width)
    for row, short_id in zip(cells, shorten_ids(case_ids, max(id_width, _MIN_ID)), strict=True):
        row[id_index] = short_id
    table = [[columns[index].title for index in shown_indices]]
    table += [[row[index] for index in shown_indices] for row in cells]
    right_aligned = {
        position for position, index in enumerate(shown_indices) if columns[index].right
    }
    return align_columns(table, right_aligned)


def _are_distinct(ids: Sequence[str], id_width: int) -> bool:
    """Return whether shortened ids are still distinct."""
    if id_width < _MIN_ID:
        return False
    return len(set(shorten_ids(ids, id_width))) == len(set(ids))


def _compute_id_width(
    columns: Sequence[TextColumn],
    rows: Sequence[Sequence[str]],
    shown: Sequence[int],
    width: int,
) -> int:
    """Return the width that remains for ids next to the other columns."""
    other_columns_width = sum(
        max(len(columns[index].title), *(len(row[index]) for row in rows), 0) + _GAP
        for index in shown
        if not columns[index].ids
    )
    return width - other_columns_width


def fits_table(columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Return whether a table fits with all columns and distinct shortened ids."""
    id_index = next(index for index, column in enumerate(columns) if column.ids)
    id_width = _compute_id_width(columns, rows, range(len(columns)), width)
    return _are_distinct([row[id_index] for row in rows], id_width)


def wrap_text(text: str, width: int, indent: str = "  ") -> Iterator[str]:
    """Yield a text in lines of at most ``width``; later lines are indented."""
    return _wrap(text, max(width, _MIN_TEXT), indent)


def _wrap(text: str, width: int, indent: str = "") -> Iterator[str]:
    lines = textwrap.wrap(
        _BEFORE_UNIT.sub(_NO_BREAK, replace_controls(text)),
        width=width,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    for line in lines:
        text_line = line.replace(_NO_BREAK, " ")
        # CI servers execute lines that begin with "::", and the text contains names from files.
        if text_line.lstrip().startswith("::"):
            text_line = text_line.replace("::", "? ", 1)
        yield text_line


def drop_parameter_names(case_id: str) -> str:
    """Return ``exchange[square,3]`` for ``exchange[slice_method=square,halo_len=3]``."""
    return _PARAMETER_NAME.sub("", case_id)


def cut_middle(text: str, width: int, tail_length: int | None = None) -> str:
    """Return a text in at most ``width`` characters, with its middle cut if needed.

    Args:
        text: The text.
        width: The most characters.
        tail_length: The characters that stay at the end. Default: half of them.
    """
    if len(text) <= width:
        return text
    if tail_length is None:
        tail_length = (width - 1) // 2
    return text[: width - 1 - tail_length] + ELLIPSIS + text[len(text) - tail_length :]


def shorten_ids(ids: Sequence[str], width: int) -> list[str]:
    """Return case ids in at most ``width`` characters each.

    If one is longer, the names of parameters are dropped from all, unless two would become equal.
    If ids are still longer, their middle is cut.
    """
    if max(map(len, ids), default=0) <= width:
        return list(ids)
    short_ids = [drop_parameter_names(case_id) for case_id in ids]
    if len(set(short_ids)) < len(set(ids)):
        short_ids = list(ids)
    return [cut_middle(case_id, width) for case_id in short_ids]
