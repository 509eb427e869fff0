"""Rewriting of a case entry key by key, so that unchanged keys keep their text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from spbench.suites.edit.draft import (
    CaseDraft,
    draft_to_data,
    format_comment,
    parse_draft,
)
from spbench.suites.edit.outline import Outline, SuiteText
from spbench.suites.edit.yaml_format import WIDTH, format_flow, format_key, to_plain
from spbench.suites.yaml_nodes import Mark, Node

_ORDERED_SECTIONS = ("matrix", "zip")
"""Sections with a significant order of keys, which is that in ids; the first is slowest."""


def rewrite_entry(outline: Outline, index: int, draft: CaseDraft) -> str:
    """Return the text with an entry changed to a draft.

    Comments inside a value that is written again move above its key.
    """
    edits = _Edits(outline.source)
    item = outline.items[index]
    span = outline.spans[index]
    old_draft = parse_draft(item, outline.read_comment(index))
    if (draft.comment or None) != old_draft.comment:
        edits.replace_lines(span.top, span.first, format_comment(draft, span.indent))
    old_data = draft_to_data(old_draft)
    new_data = align_keys(old_data, draft_to_data(draft))
    if not is_same(old_data, new_data):
        _change_entry(edits, item, old_data, new_data)
    return edits.apply()


def rewrite_keys(
    outline: Outline, node: Node, old: Mapping[str, Any], new: Mapping[str, Any]
) -> str:
    """Return the text with keys of a mapping changed; other keys are unchanged."""
    edits = _Edits(outline.source)
    _change_keys(edits, node, old, new)
    return edits.apply()


def is_same(value: Any, other: Any) -> bool:
    """Return whether two values are equal, including types and the order of keys."""
    return repr(to_plain(value)) == repr(to_plain(other))


def align_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry's data with its keys in the order of an older entry.

    Sections with a significant order are unchanged.
    """
    return {
        key: value if key in _ORDERED_SECTIONS else _align_value(old.get(key), value)
        for key, value in new.items()
    }


def _align_value(old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    keys = [*(key for key in old if key in new), *(key for key in new if key not in old)]
    return {key: _align_value(old.get(key), new[key]) for key in keys}


class _Edits:
    """Collected changes of a text, which are applied from its end to its start."""

    def __init__(self, source: SuiteText) -> None:
        self.source = source
        self._edits: list[tuple[int, int, int, str]] = []
        self._comments: list[tuple[int, str]] | None = None

    def replace_lines(self, first: int, after: int, lines: list[str], rank: int = 0) -> None:
        """Replace the lines from ``first`` to the one before ``after``.

        Lines that are inserted at the same position are sorted by ``rank``.
        """
        source = self.source
        text = "".join(line + source.newline for line in lines)
        start = source.find_line_start(first)
        if lines and start == len(source.text) and source.find_line(start) < first:
            text = source.newline + text.removesuffix(source.newline)  # the last line has no end
        self._edits.append((start, source.find_line_start(after), rank, text))

    def replace_text(self, start: int, end: int, lines: list[str]) -> None:
        """Replace characters by lines; comments in them move above their first line."""
        line = self.source.find_line(start)
        moved_comments = [
            " " * _count_indent(lines) + text for text in self._list_comments(start, end)
        ]
        if moved_comments:
            self.replace_lines(line, line, moved_comments, rank=1)
        self._edits.append((start, end, 0, self.source.newline.join(lines).lstrip()))

    def apply(self) -> str:
        """Return the changed text."""
        text = self.source.text
        for start, end, _, replacement in sorted(self._edits, key=lambda edit: edit[:3])[::-1]:
            text = text[:start] + replacement + text[end:]
        return text

    def _list_comments(self, start: int, end: int) -> list[str]:
        if self._comments is None:
            self._comments = find_comments(self.source.text)
        return [text for offset, text in self._comments if start <= offset < end]


def find_comments(text: str) -> list[tuple[int, str]]:
    """Return the comments of a YAML text with their offsets: text that is in no token."""
    offsets_and_comments = []
    offset = 0
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for token in yaml.scan(text, Loader=loader):
        start = token.start_mark.index
        end = token.end_mark.index
        text_between_tokens = text[offset:start]
        for line in text_between_tokens.splitlines(keepends=True):
            column = line.find("#")
            if column >= 0:
                offsets_and_comments.append((offset + column, line[column:].rstrip()))
            offset += len(line)
        offset = max(offset, end)
    return offsets_and_comments


def _count_indent(lines: list[str]) -> int:
    return len(lines[0]) - len(lines[0].lstrip())


def _change_entry(edits: _Edits, item: Node, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Change an entry; one in braces, or without its first key, is written again."""
    if _is_block(item) and next(iter(item.content)) in new:
        _change_keys(edits, item, old, new)
        return
    indent = item.mark.column - 1
    lines = [line for key, value in new.items() for line in format_key(key, value, indent)]
    if item.flow and indent + len(format_flow(new)) <= WIDTH:
        lines = [" " * indent + format_flow(new)]
    edits.replace_text(edits.source.find_offset(item.mark), edits.source.find_end(item), lines)


def _change_keys(edits: _Edits, node: Node, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    for key in new:
        if key not in node.content:
            _add_key(edits, node, key, new)
    for key, (mark, value) in node.content.items():
        if key in new and not is_same(old.get(key), new[key]):
            _set_key(edits, key, mark, value, old.get(key), new[key])
        elif key in old and key not in new:
            edits.replace_lines(mark.line, edits.source.find_last_line(value) + 1, [])


def _add_key(edits: _Edits, node: Node, key: str, new: Mapping[str, Any]) -> None:
    """Add a key below the nearest key before it."""
    keys = list(new)
    (first, *_) = node.content
    earlier_keys = [
        earlier_key for earlier_key in keys[: keys.index(key)] if earlier_key in node.content
    ]
    value_above = node.content[earlier_keys[-1] if earlier_keys else first][1]
    indent = node.content[first][0].column - 1
    line = edits.source.find_last_line(value_above) + 1
    lines = format_key(key, new[key], indent, flow=_has_braces(node))
    # Additions to a section come before additions below it.
    edits.replace_lines(line, line, lines, rank=-indent)


def _set_key(edits: _Edits, key: str, mark: Mark, value: Node, old: Any, new: Any) -> None:
    if _is_block(value) and isinstance(new, Mapping) and _keeps_order(value.content, new):
        _change_keys(edits, value, old, new)
        return
    lines = format_key(key, new, mark.column - 1, flow=value.flow)
    edits.replace_text(edits.source.find_offset(mark), edits.source.find_end(value), lines)


def _has_braces(node: Node) -> bool:
    """Return whether a mapping in a block has mappings in braces."""
    return any(value.flow and isinstance(value.content, dict) for _, value in node.content.values())


def _is_block(node: Node) -> bool:
    """Return whether a node is a mapping with a line per key, and not an alias."""
    if node.flow or not isinstance(node.content, dict) or not node.content:
        return False
    return bool(next(iter(node.content.values()))[0] >= node.mark)


def _keeps_order(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether common keys have the same order, with the same first key."""
    common_keys = [key for key in old if key in new]
    return (
        common_keys == [key for key in new if key in old] and list(new)[:1] == common_keys[:1] != []
    )
