"""HTML and SVG built from elements and text; plain text is escaped automatically."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from spbench.record.number_formatting import replace_line_controls

Value = str | float | None


class Markup(str):
    """Text that is HTML and needs no escaping."""

    __slots__ = ()


NOTHING = Markup("")
_VOID = frozenset({"meta", "link", "br"})
_SHAPES = frozenset({"path", "rect", "line", "circle", "polyline"})


def escape_text(part: str) -> Markup:
    """Return plain text as HTML, without control characters; return markup unchanged."""
    return part if isinstance(part, Markup) else Markup(escape(replace_line_controls(part)))


def tag(name: str, /, *children: str, **attributes: Value) -> Markup:
    """Return an element with all attributes that are not None.

    ``class_`` is the attribute ``class``, and ``stroke_width`` is ``stroke-width``.
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{attribute_text}>")
    if name in _SHAPES and not children:
        return Markup(f"<{name}{attribute_text}/>")
    return Markup(f"<{name}{attribute_text}>{join_markup(children)}</{name}>")


def join_markup(parts: Iterable[str], between: str = "") -> Markup:
    """Return the parts as one markup."""
    return Markup(between.join(map(escape_text, parts)))


def _attribute(value: str | float) -> str:
    return escape(replace_line_controls(value)) if isinstance(value, str) else svg_number(value)


def svg_number(value: float) -> str:
    """Return a number with at most one decimal, which is enough for coordinates."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def breakable_id(text: str) -> Markup:
    """Return a case's id with possible line breaks between its parameters."""
    return join_markup((escape_text(part) for part in text.split(",")), ",<wbr>")


def html_table(
    columns: Iterable[str], rows: Iterable[Iterable[str]], figures: Iterable[int] = ()
) -> Markup:
    """Return a table; ``figures`` has the indices of columns with numbers."""
    right = frozenset(figures)
    head = _table_row("th", columns, right)
    body = join_markup(_table_row("td", row, right) for row in rows)
    table = tag("table", tag("thead", head), tag("tbody", body))
    return tag("div", table, class_="wide")


def _table_row(name: str, cells: Iterable[str], right: frozenset[int]) -> Markup:
    return tag(
        "tr", *(tag(name, cell, class_="n" if i in right else None) for i, cell in enumerate(cells))
    )


def tile_grid(tiles: Iterable[Markup], more: int, noun: str) -> Markup:
    """Return tiles with a note on further ones, or nothing without tiles."""
    shown = list(tiles)
    if not shown:
        return NOTHING
    note = tag("p", f"and {more} more {noun}", class_="soft") if more > 0 else NOTHING
    return join_markup([tag("div", *shown, class_="tiles"), note])
