"""Writes case entries into the text of a suite; all other text is kept byte for byte.

Comments directly above an entry are its own and go with it. Every edit is read back before it is
handed out: one that would change more than its entry is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spbench.errors import UsageError
from spbench.suites.case import SCHEMA
from spbench.suites.edit.draft import (
    CaseDraft,
    draft_to_data,
    format_comment,
    format_section,
    parse_draft,
)
from spbench.suites.edit.outline import BYTE_ORDER_MARK, Outline
from spbench.suites.edit.rewrite import align_keys, is_same, rewrite_entry
from spbench.suites.wording import find_shape_error
from spbench.suites.yaml_nodes import Node


@dataclass(frozen=True, slots=True)
class EditedText:
    """A changed text, and the line (from 1) at which to look: that of the entry's dash."""

    text: str
    line: int


def insert_case(
    text: str, draft: CaseDraft, after: int | None = None, suite: str = "suite"
) -> EditedText:
    """Return the text with a new entry below the one at line ``after``, or below the last.

    An empty text gets the head that a suite needs, with ``suite`` as its name.

    Raises:
        UsageError: The text is no YAML, or has its cases in brackets.
    """
    outline = Outline(text)
    _refuse_brackets(outline)
    at = outline.find_last_before(after) if after is not None else None
    at = len(outline.items) - 1 if at is None else at
    if outline.items:
        span = outline.spans[at]
        lines = [""] * outline.has_blank_lines + _entry_lines(draft, span.indent)
        edited = _put_below(outline, span.last, lines)
    elif outline.cases is not None:
        outline, line = _without_empty_list(outline, outline.cases)
        edited = _put_below(outline, line, _entry_lines(draft, _indent(outline) + 2))
    else:
        edited = _with_head(outline, draft, suite)
    return _confirmed(text, edited, at + 1, draft, others=_data(outline))


def replace_case(text: str, index: int, draft: CaseDraft) -> EditedText:
    """Return the text with an entry (from 0) changed to what the draft says.

    Raises:
        UsageError: There is no such entry, or it cannot be edited by a form.
    """
    outline = Outline(text)
    _refuse_misshapen(outline, index)
    others = _data(outline)
    del others[index]
    edited = rewrite_entry(outline, index, draft)
    return _confirmed(text, edited, index, draft, others)


def remove_case(text: str, index: int) -> EditedText:
    """Return the text without an entry (from 0) and the comment directly above it.

    Raises:
        UsageError: There is no such entry, or others need it: they name an anchor in it.
    """
    outline = Outline(text)
    outline.find_item(index)
    others = _data(outline)
    page = outline.source
    del others[index]
    span = outline.spans[index]
    first = span.top
    after = span.last + 1
    if index == len(outline.items) - 1:
        while first > 1 and page.is_blank(first - 1):
            first -= 1
    else:
        while page.is_blank(after):
            after += 1
    edited = page.text[: page.find_line_start(first)] + page.text[page.find_line_start(after) :]
    return _confirmed(text, edited, None, None, others, line=first)


def find_entry(text: str, line: int) -> int | None:
    """Return the entry (from 0) that spans a line (from 1), the comment above it included.

    None between entries, and where the text is no YAML.
    """
    try:
        return Outline(text).find_entry(line)
    except UsageError:
        return None


def read_draft(text: str, index: int) -> CaseDraft:
    """Return an entry (from 0) as a draft that a form can edit.

    Raises:
        UsageError: There is no such entry, or a key of it is unknown or of a wrong shape.
    """
    outline = Outline(text)
    _refuse_misshapen(outline, index)
    return parse_draft(outline.items[index], outline.read_comment(index))


def _refuse_misshapen(outline: Outline, index: int) -> None:
    data = outline.find_item(index).data
    if isinstance(data, dict) and isinstance(launch := data.get("launch"), dict):
        # The values of env are text, however they are written.
        data = data | {"launch": {key: launch[key] for key in launch if key != "env"}}
    if wrong := find_shape_error(cases=[data]):
        line = outline.spans[index].first
        raise UsageError(f"line {line}: {wrong}; fix it before you edit the case in a form")


def _refuse_brackets(outline: Outline) -> None:
    root = outline.document.root
    cases = outline.cases
    if root.content is not None and not isinstance(root.content, dict):
        raise UsageError("the text is no suite: begin it with 'schema: spbench.suite/1'")
    if isinstance(root.content, dict) and root.flow:
        raise UsageError("the whole suite stands in braces; write each of its keys on its own line")
    if cases is None or cases.content is None or outline.items or cases.content == []:
        return
    what = "no list" if not isinstance(cases.content, list) else "written in brackets"
    raise UsageError(
        f"line {cases.mark.line}: cases is {what}; write each case below it on lines of its own, "
        "after a dash"
    )


def _entry_lines(draft: CaseDraft, indent: int) -> list[str]:
    data = draft_to_data(draft)
    keys = [line for key in data for line in format_section(key, data[key], indent + 2)]
    first = f"{' ' * indent}- {keys[0].lstrip()}"
    return [*format_comment(draft, indent), first, *keys[1:]]


def _put_below(outline: Outline, line: int, lines: list[str]) -> str:
    """Return the text with lines below one of its lines; a last line without end stays so."""
    page = outline.source
    at = page.find_line_start(line + 1)
    new = page.newline.join(lines)
    if page.find_line(at) == line:  # the text ends within this line
        return page.text + page.newline * bool(page.read_line(line)) + new
    return page.text[:at] + new + page.newline + page.text[at:]


def _without_empty_list(outline: Outline, cases: Node) -> tuple[Outline, int]:
    """Return the text without what stands for no cases (``[]``, ``~``), and its line."""
    page = outline.source
    start = page.find_offset(cases.mark)
    end = page.find_offset(cases.end)
    if "#" in page.text[start:end]:
        raise UsageError(f"line {cases.mark.line}: remove the brackets of the empty list of cases")
    key = page.text[:start].rstrip()
    return Outline(key + page.text[end:]), page.find_line(len(key) - 1)


def _with_head(outline: Outline, draft: CaseDraft, suite: str) -> str:
    """Return the text with the entry at its end, and above it the keys that a suite lacks."""
    indent = _indent(outline)
    needed = {"schema": SCHEMA, "name": suite}
    head = [
        line
        for key, value in needed.items()
        if outline.document.root.find_node((key,)) is None
        for line in format_section(key, value, indent)
    ]
    lines = [*head, " " * indent + "cases:", *_entry_lines(draft, indent + 2)]
    page = outline.source
    last = page.find_line(len(page.text))
    ended = not page.read_line(last)
    return _put_below(outline, last, lines) + page.newline * ended


def _indent(outline: Outline) -> int:
    root = outline.document.root
    return root.mark.column - 1 if root.content else 0


def _data(outline: Outline) -> list[Any]:
    return [item.data for item in outline.items]


def _confirmed(
    before: str,
    text: str,
    index: int | None,
    draft: CaseDraft | None,
    others: list[Any],
    line: int = 0,
) -> EditedText:
    """Return an edit once it reads as it should: the entry as drafted, all else as before.

    Raises:
        UsageError: It does not.
    """
    harm = UsageError(
        "the form cannot change this case without harm to the rest of the text (another case may "
        "name an anchor in it); change the text by hand"
    )
    try:
        outline = Outline(text)
    except UsageError:
        raise harm from None
    cases = _data(outline)
    old = _around(Outline(before))
    new = _around(outline)
    if draft is not None and index is not None:
        if not _holds(outline, index, draft):
            raise harm
        line = outline.spans[index].first
        del cases[index]
    if not is_same(cases, others) or not is_same(old, {key: new.get(key) for key in old}):
        raise harm
    mark = BYTE_ORDER_MARK if before.startswith(BYTE_ORDER_MARK) else ""
    return EditedText(mark + text, line)


def _around(outline: Outline) -> dict[str, Any]:
    data = outline.document.root.data or {}
    return {key: value for key, value in data.items() if key != "cases"}


def _holds(outline: Outline, index: int, draft: CaseDraft) -> bool:
    """Say whether an entry holds what a draft says."""
    if index >= len(outline.items) or not isinstance(outline.items[index].content, dict):
        return False
    written = parse_draft(outline.items[index], outline.read_comment(index))
    data = draft_to_data(written)
    return is_same(data, align_keys(data, draft_to_data(draft))) and (
        format_comment(written, 0) == format_comment(draft, 0)
    )
