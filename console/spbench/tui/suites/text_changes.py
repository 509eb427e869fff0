"""Steps of the editor's history: replaced texts with a name, and typed text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.document._edit import Edit
from textual.widgets.text_area import Location


@dataclass(repr=False)
class NamedEdit(Edit):
    """A change by an action other than typing, with its name such as ``case c added``."""

    name: str = ""


def make_replacement(lines: Sequence[str], text: str, name: str) -> NamedEdit:
    """Return the edit that replaces the part in which a text differs from lines."""
    old_text = "\n".join(lines)
    new_text = "\n".join(split_lines(text))
    prefix_length = _count_common_items(old_text, new_text)
    suffix_length = _count_common_items(
        old_text[prefix_length:][::-1], new_text[prefix_length:][::-1]
    )
    return NamedEdit(
        new_text[prefix_length : len(new_text) - suffix_length],
        _find_location(old_text, prefix_length),
        _find_location(old_text, len(old_text) - suffix_length),
        maintain_selection_offset=False,
        name=name,
    )


def find_name(step: Sequence[Edit]) -> str:
    """Return the name of a step; empty if its text was typed."""
    return next((edit.name for edit in step if isinstance(edit, NamedEdit)), "")


def describe_lines(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the lines in which two texts differ, such as ``text of lines 12-14``."""
    first = _count_common_items(before, after)
    last = max(len(before), len(after)) - _count_common_items(
        before[first:][::-1], after[first:][::-1]
    )
    if last <= first + 1:
        return f"text of line {first + 1}"
    return f"text of lines {first + 1}-{last}"


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, with an empty line after a final line break."""
    return [*text.splitlines(), ""] if text.endswith(("\n", "\r")) else text.splitlines() or [""]


def _count_common_items(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the number of characters or lines at the start that are equal."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((index for index, (x, y) in pairs if x != y), min(len(a), len(b)))


def _find_location(text: str, offset: int) -> Location:
    return text.count("\n", 0, offset), offset - text.rfind("\n", 0, offset) - 1
