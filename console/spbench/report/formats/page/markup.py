"""HTML and SVG from elements and text; text that is no markup is escaped where it is put in."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from spbench.record.number_formatting import strip_line_controls

Value = str | float | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


NOTHING = Markup("")
_VOID = frozenset({"meta", "link", "br"})
_SHAPES = frozenset({"path", "rect", "line", "circle", "polyline"})


def escape_text(part: str) -> Markup:
    """Return text as HTML that shows it, without what is no letter; markup as it is."""
    return part if isinstance(part, Markup) else Markup(escape(strip_line_controls(part)))


def tag(name: str, /, *children: str, **attributes: Value) -> Markup:
    """Return an element; attributes that are None are left out.

    ``class_`` is the attribute ``class``, and ``stroke_width`` is ``stroke-width``.
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{told}>")
    if name in _SHAPES and not children:
        return Markup(f"<{name}{told}/>")
    return Markup(f"<{name}{told}>{join_markup(children)}</{name}>")


def join_markup(parts: Iterable[str], between: str = "") -> Markup:
    """Return parts one after another."""
    return Markup(between.join(map(escape_text, parts)))


def _attribute(value: str | float) -> str:
    return escape(strip_line_controls(value)) if isinstance(value, str) else svg_number(value)


def svg_number(value: float) -> str:
    """Return a number in as few letters as a drawing needs."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def breakable_id(text: str) -> Markup:
    """Return a case's id, which may be broken between its parameters."""
    return join_markup((escape_text(part) for part in text.split(",")), ",<wbr>")


def html_table(
    columns: Iterable[str], rows: Iterable[Iterable[str]], figures: Iterable[int] = ()
) -> Markup:
    """Return a table; the columns ``figures`` hold numbers."""
    right = frozenset(figures)
    head = join_markup(tag("th", cell, class_=_side(at, right)) for at, cell in enumerate(columns))
    body = join_markup(
        tag("tr", *(tag("td", cell, class_=_side(at, right)) for at, cell in enumerate(row)))
        for row in rows
    )
    whole = tag("table", tag("thead", tag("tr", head)), tag("tbody", body))
    return tag("div", whole, class_="wide")


def _side(at: int, right: frozenset[int]) -> str | None:
    return "n" if at in right else None
