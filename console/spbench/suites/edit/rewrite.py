"""Changes a case entry in place, key by key, so that all that stays the same stays as written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from spbench.suites.edit.draft import (
    CaseDraft,
    draft_to_data,
    format_comment,
    format_section,
    parse_draft,
)
from spbench.suites.edit.outline import Outline, SuiteText
from spbench.suites.edit.writing import WIDTH, format_flow, to_plain
from spbench.suites.yaml_nodes import Mark, Node

_IN_ORDER = ("matrix", "zip")
"""Sections in which the order of the keys means something: ids show it, the first is slowest."""


def rewrite_entry(outline: Outline, index: int, draft: CaseDraft) -> str:
    """Return the text with one entry changed to what a draft says.

    Comments inside a value that is written anew move above its key.
    """
    edits = _Edits(outline.source)
    item = outline.items[index]
    span = outline.spans[index]
    before = parse_draft(item, outline.read_comment(index))
    if (draft.comment or None) != before.comment:
        edits.lines(span.top, span.first, format_comment(draft, span.indent))
    old = draft_to_data(before)
    new = align_keys(old, draft_to_data(draft))
    if not is_same(old, new):
        _change(edits, item, old, new)
    return edits.applied()


def is_same(one: Any, other: Any) -> bool:
    """Say whether two values are alike, their types and the order of their keys included."""
    return repr(to_plain(one)) == repr(to_plain(other))


def align_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry's data with the keys of its sections ordered as an older entry has them.

    Only where the order means nothing.
    """
    return {
        key: value if key in _IN_ORDER else _as_before(old.get(key), value)
        for key, value in new.items()
    }


def _as_before(old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    keys = [*(key for key in old if key in new), *(key for key in new if key not in old)]
    return {key: _as_before(old.get(key), new[key]) for key in keys}


class _Edits:
    """Changes of a text, gathered and then made from its end on."""

    def __init__(self, page: SuiteText) -> None:
        self.page = page
        self._edits: list[tuple[int, int, int, str]] = []
        self._comments: list[tuple[int, str]] | None = None

    def lines(self, first: int, after: int, lines: list[str], rank: int = 0) -> None:
        """Replace the lines from ``first`` to the one before ``after``.

        Of those put at one place the lowest ``rank`` comes first.
        """
        page = self.page
        text = "".join(line + page.newline for line in lines)
        start = page.find_line_start(first)
        if lines and start == len(page.text) and page.find_line(start) < first:
            text = page.newline + text.removesuffix(page.newline)  # the last line has no end
        self._edits.append((start, page.find_line_start(after), rank, text))

    def value(self, start: int, end: int, lines: list[str]) -> None:
        """Replace characters by lines; comments among them move above the line of the first."""
        here = self.page.find_line(start)
        moved = [" " * _indent(lines) + text for text in self._comments_in(start, end)]
        if moved:
            self.lines(here, here, moved, rank=1)
        self._edits.append((start, end, 0, self.page.newline.join(lines).lstrip()))

    def applied(self) -> str:
        """Return the changed text."""
        text = self.page.text
        for start, end, _, new in sorted(self._edits, key=lambda edit: edit[:3])[::-1]:
            text = text[:start] + new + text[end:]
        return text

    def _comments_in(self, start: int, end: int) -> list[str]:
        if self._comments is None:
            self._comments = find_comments(self.page.text)
        return [text for at, text in self._comments if start <= at < end]


def find_comments(text: str) -> list[tuple[int, str]]:
    """Return the comments of a YAML text, each with where it begins: what no token holds."""
    found = []
    at = 0
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for token in yaml.scan(text, Loader=loader):
        start = token.start_mark.index
        end = token.end_mark.index
        gap = text[at:start]
        for line in gap.splitlines(keepends=True):
            mark = line.find("#")
            if mark >= 0:
                found.append((at + mark, line[mark:].rstrip()))
            at += len(line)
        at = max(at, end)
    return found


def _indent(lines: list[str]) -> int:
    return len(lines[0]) - len(lines[0].lstrip())


def _change(edits: _Edits, item: Node, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Change an entry's mapping; one in braces, or that loses its first key, is written anew."""
    if _by_keys(item) and next(iter(item.content)) in new:
        _change_keys(edits, item, old, new)
        return
    indent = item.mark.column - 1
    lines = [line for key, value in new.items() for line in format_section(key, value, indent)]
    if item.flow and indent + len(format_flow(new)) <= WIDTH:
        lines = [" " * indent + format_flow(new)]
    edits.value(edits.page.find_offset(item.mark), edits.page.find_end(item), lines)


def _change_keys(edits: _Edits, node: Node, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    for key in new:
        if key not in node.content:
            _add(edits, node, key, new)
    for key, (mark, value) in node.content.items():
        if key in new and not is_same(old.get(key), new[key]):
            _set(edits, key, mark, value, old.get(key), new[key])
        elif key in old and key not in new:
            edits.lines(mark.line, edits.page.find_last_line(value) + 1, [])


def _add(edits: _Edits, node: Node, key: str, new: Mapping[str, Any]) -> None:
    """Add a key below the nearest that comes before it."""
    keys = list(new)
    (first, *_) = node.content
    before = [known for known in keys[: keys.index(key)] if known in node.content]
    above = node.content[before[-1] if before else first][1]
    indent = node.content[first][0].column - 1
    line = edits.page.find_last_line(above) + 1
    # What is added to a section stands before what is added below it.
    edits.lines(line, line, format_section(key, new[key], indent), rank=-indent)


def _set(edits: _Edits, key: str, mark: Mark, value: Node, old: Any, new: Any) -> None:
    if _by_keys(value) and isinstance(new, Mapping) and _grows(value.content, new):
        _change_keys(edits, value, old, new)
        return
    lines = format_section(key, new, mark.column - 1)
    edits.value(edits.page.find_offset(mark), edits.page.find_end(value), lines)


def _by_keys(node: Node) -> bool:
    """Say whether a node is a mapping with a line for each key, and no alias of one elsewhere."""
    if node.flow or not isinstance(node.content, dict) or not node.content:
        return False
    return bool(next(iter(node.content.values()))[0] >= node.mark)


def _grows(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Say whether the keys that both have stand in one order, the first of them first."""
    kept = [key for key in old if key in new]
    return kept == [key for key in new if key in old] and list(new)[:1] == kept[:1] != []
