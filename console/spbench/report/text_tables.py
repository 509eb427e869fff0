"""Plain text tables and paragraphs of a given width."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from spbench.record.number_formatting import strip_controls

PIPE_WIDTH = 120
"""Columns of output that no terminal shows."""
LEAST_WIDTH = 60
"""Narrower terminals wrap the lines."""
_GAP = 2
_LEAST_TEXT = 24
"""Columns below which paragraphs are not made narrower."""
_LEAST_ID = 12
"""Columns below which ids are not shortened further."""
_NO_BREAK = "\u00a0"
_BEFORE_UNIT = re.compile(
    r"(?<=\d) (?=(?:[pnum]?s|min|h|%|[kMGTP]?i?B|[kMGTP]?FLOP|images|cases?|launches)(?![a-z]))"
)
"""The space between a number and its unit, at which no line ends."""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of a table.

    Attributes:
        right: Whether its cells are aligned to the right.
        ids: Whether it has case ids, which are shortened first.
        optional: Whether it is left out if it is empty, or shortened ids do not make enough room.
        rank: Of the optional columns, the one with the highest rank is left out first, then the
            rightmost of those of equal rank.
    """

    title: str
    right: bool = False
    ids: bool = False
    optional: bool = False
    rank: int = 0


def align_columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return one line a row, its cells two blanks apart; the columns in ``right`` end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def align_and_wrap(
    rows: Sequence[Sequence[str]], width: int, right: Collection[int] = ()
) -> list[str]:
    """Return rows like `aligned`, with last cells wrapped at ``width`` below themselves."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    room = max(width - sum(widths) - _GAP * len(widths), _LEAST_ID)
    lines: list[Sequence[str]] = []
    for *cells, last in rows:
        first, *others = list(_wrap(last, room)) or [""]
        lines.append((*cells, first))
        lines += [(*[""] * len(cells), other) for other in others]
    return align_columns(lines, right)


def render_table(
    columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int
) -> list[str]:
    """Return a heading and one line for each row, none longer than ``width``.

    Args:
        columns: The columns from left to right, one of them with ids.
        rows: One cell for each column.
        width: The columns of the terminal.
    """
    cells = [[strip_controls(cell) for cell in row] for row in rows]
    shown = [
        index
        for index, column in enumerate(columns)
        if not column.optional or any(row[index] for row in cells)
    ]
    ids = next(index for index, column in enumerate(columns) if column.ids)
    case_ids = [row[ids] for row in cells]
    room = _room_of_ids(columns, cells, shown, width)
    optional = [index for index in shown if columns[index].optional]
    for index in sorted(optional, key=lambda index: (columns[index].rank, index), reverse=True):
        if _are_distinct(case_ids, room):
            break
        shown.remove(index)
        room = _room_of_ids(columns, cells, shown, width)
    for row, short in zip(cells, shorten_ids(case_ids, max(room, _LEAST_ID)), strict=True):
        row[ids] = short
    table = [[columns[index].title for index in shown]]
    table += [[row[index] for index in shown] for row in cells]
    right = {place for place, index in enumerate(shown) if columns[index].right}
    return align_columns(table, right)


def _are_distinct(ids: Sequence[str], room: int) -> bool:
    """Return whether shortened ids are still different, since equal rows are of no use."""
    if room < _LEAST_ID:
        return False
    return len(set(shorten_ids(ids, room))) == len(set(ids))


def _room_of_ids(
    columns: Sequence[TextColumn],
    rows: Sequence[Sequence[str]],
    shown: Sequence[int],
    width: int,
) -> int:
    """Return the width that the other columns leave for ids."""
    others = sum(
        max(len(columns[index].title), *(len(row[index]) for row in rows), 0) + _GAP
        for index in shown
        if not columns[index].ids
    )
    return width - others


def fits_table(columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Return whether a table needs no column left out, and has ids that are still different."""
    ids = next(index for index, column in enumerate(columns) if column.ids)
    room = _room_of_ids(columns, rows, range(len(columns)), width)
    return _are_distinct([row[ids] for row in rows], room)


def wrap_text(text: str, width: int, indent: str = "  ") -> Iterator[str]:
    """Yield a text in lines of at most ``width``; all but the first are indented."""
    return _wrap(text, max(width, _LEAST_TEXT), indent)


def _wrap(text: str, width: int, indent: str = "") -> Iterator[str]:
    lines = textwrap.wrap(
        _BEFORE_UNIT.sub(_NO_BREAK, strip_controls(text)),
        width=width,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    for line in lines:
        whole = line.replace(_NO_BREAK, " ")
        # A CI server takes such a line for a command, and names of a file are in the text.
        yield whole.replace("::", "? ", 1) if whole.lstrip().startswith("::") else whole


ELLIPSIS = "…"
_PARAMETER_NAME = re.compile(r"(?<=[\[,])[^=,\[\]]+=")


def drop_parameter_names(case_id: str) -> str:
    """Return ``exchange[square,3]`` for ``exchange[slice_method=square,halo_len=3]``."""
    return _PARAMETER_NAME.sub("", case_id)


def cut_middle(text: str, width: int) -> str:
    """Return a text in at most ``width`` characters; its middle is replaced where it is longer."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + ELLIPSIS + text[len(text) - tail :]


def shorten_ids(ids: Sequence[str], width: int) -> list[str]:
    """Return case ids in at most ``width`` characters each.

    If one is longer, all lose the names of their parameters, unless two would become equal. Ids
    that are still longer lose their middle.
    """
    if max(map(len, ids), default=0) <= width:
        return list(ids)
    short = [drop_parameter_names(case_id) for case_id in ids]
    if len(set(short)) < len(set(ids)):
        short = list(ids)
    return [cut_middle(case_id, width) for case_id in short]
