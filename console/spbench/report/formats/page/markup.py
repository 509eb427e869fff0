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


def escape_text(text: str) -> Markup:
    """Return plain text as HTML, without control characters; return markup unchanged."""
    return text if isinstance(text, Markup) else Markup(escape(replace_line_controls(text)))


def tag(name: str, /, *children: str, **attributes: Value) -> Markup:
    """Return an element with all attributes that are not None.

    ``class_`` is the attribute ``class``, and ``stroke_width`` is ``stroke-width``.
    """
    attribute_text = "".join(
        f' {attribute.rstrip("_").replace("_", "-")}="{_format_attribute(value)}"'
        for attribute, value in attributes.items()
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


def _format_attribute(value: str | float) -> str:
    return escape(replace_line_controls(value)) if isinstance(value, str) else svg_number(value)


def svg_number(value: float) -> str:
    """Return a number with at most one decimal, which is enough for coordinates."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def breakable_id(text: str) -> Markup:
    """Return a case's id with possible line breaks between its parameters."""
    return join_markup((escape_text(parameter) for parameter in text.split(",")), ",<wbr>")


def html_table(
    columns: Iterable[str], rows: Iterable[Iterable[str]], number_columns: Iterable[int] = ()
) -> Markup:
    """Return a table; ``number_columns`` has the indices of columns with numbers."""
    right_aligned = frozenset(number_columns)
    head = _render_table_row("th", columns, right_aligned)
    body = join_markup(_render_table_row("td", row, right_aligned) for row in rows)
    table = tag("table", tag("thead", head), tag("tbody", body))
    return tag("div", table, class_="wide")


def _render_table_row(name: str, cells: Iterable[str], right_aligned: frozenset[int]) -> Markup:
    return tag(
        "tr",
        *(
            tag(name, cell, class_="n" if index in right_aligned else None)
            for index, cell in enumerate(cells)
        ),
    )


def tile_grid(tiles: Iterable[Markup], more: int, noun: str) -> Markup:
    """Return tiles with a note on further ones, or nothing without tiles."""
    shown = list(tiles)
    if not shown:
        return NOTHING
    note = tag("p", f"and {more} more {noun}", class_="soft") if more > 0 else NOTHING
    return join_markup([tag("div", *shown, class_="tiles"), note])
