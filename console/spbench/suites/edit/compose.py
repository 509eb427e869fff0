"""Editor of case entries in a suite's text; other text is unchanged.

Comments directly above an entry belong to it. Every edit is parsed again before it is returned: an
edit that would change more than its entry is rejected.
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
    parse_draft,
)
from spbench.suites.edit.outline import BYTE_ORDER_MARK, Outline
from spbench.suites.edit.rewrite import align_keys, is_same, rewrite_entry
from spbench.suites.edit.yaml_format import format_key
from spbench.suites.validation_messages import find_shape_error
from spbench.suites.yaml_nodes import Node


@dataclass(frozen=True, slots=True)
class EditedText:
    """A changed text, and the line (from 1) of the changed entry's dash."""

    text: str
    line: int


def insert_case(
    text: str, draft: CaseDraft, after: int | None = None, suite: str = "suite"
) -> EditedText:
    """Return the text with a new entry after the one at line ``after``, or at the end.

    An empty text gets the required keys of a suite, with ``suite`` as its name.

    Raises:
        UsageError: The text is not YAML, or has its cases in brackets.
    """
    outline = Outline(text)
    _reject_brackets(outline)
    index = outline.find_last_before(after) if after is not None else None
    index = len(outline.items) - 1 if index is None else index
    if outline.items:
        previous_span = outline.spans[index]
        new_lines = [""] * outline.has_blank_lines + _format_entry(draft, previous_span.indent)
        edited = _insert_below(outline, previous_span.last, new_lines)
    elif outline.cases is not None:
        outline, line = _remove_empty_list(outline, outline.cases)
        edited = _insert_below(outline, line, _format_entry(draft, _find_indent(outline) + 2))
    else:
        edited = _append_suite(outline, draft, suite)
    return _check_edit(text, edited, index + 1, draft, expected_cases=_list_case_data(outline))


def replace_case(text: str, index: int, draft: CaseDraft) -> EditedText:
    """Return the text with an entry (from 0) replaced by a draft.

    Raises:
        UsageError: There is no such entry, or it cannot be edited by a form.
    """
    outline = Outline(text)
    _reject_invalid(outline, index)
    other_cases = _list_case_data(outline)
    del other_cases[index]
    edited = rewrite_entry(outline, index, draft)
    return _check_edit(text, edited, index, draft, other_cases)


def remove_case(text: str, index: int) -> EditedText:
    """Return the text without an entry (from 0) and the comment directly above it.

    Raises:
        UsageError: There is no such entry, or other entries use an anchor in it.
    """
    outline = Outline(text)
    outline.find_item(index)
    other_cases = _list_case_data(outline)
    source = outline.source
    del other_cases[index]
    span = outline.spans[index]
    first_line = span.top
    next_line = span.last + 1
    if index == len(outline.items) - 1:
        while first_line > 1 and source.is_blank(first_line - 1):
            first_line -= 1
    else:
        while source.is_blank(next_line):
            next_line += 1
    edited = (
        source.text[: source.find_line_start(first_line)]
        + source.text[source.find_line_start(next_line) :]
    )
    return _check_edit(text, edited, None, None, other_cases, line=first_line)


def find_entry(text: str, line: int) -> int | None:
    """Return the entry (from 0) at a line (from 1), including the comment above it.

    The result is None between entries, and if the text is not YAML.
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
    return read_entry(Outline(text), index)


def read_entry(outline: Outline, index: int) -> CaseDraft:
    """Return an entry of an outline like `read_draft`."""
    _reject_invalid(outline, index)
    return parse_draft(outline.items[index], outline.read_comment(index))


def read_defaults(text: str) -> Any:
    """Return the data of ``defaults:``, which may be invalid; None without them."""
    try:
        data = Outline(text).document.root.data
    except UsageError:
        return None
    return data.get("defaults") if isinstance(data, dict) else None


def _reject_invalid(outline: Outline, index: int) -> None:
    data = outline.find_item(index).data
    if isinstance(data, dict) and isinstance(launch := data.get("launch"), dict):
        # The values of env are text in any notation, so their types are not checked.
        data = data | {"launch": {key: launch[key] for key in launch if key != "env"}}
    if wrong := find_shape_error(cases=[data]):
        line = outline.spans[index].first
        raise UsageError(f"line {line}: {wrong}; fix it before you edit the case in a form")


def require_block(outline: Outline) -> None:
    """Reject a suite with several keys on one line.

    Raises:
        UsageError: The text is not a suite, or the suite is in braces.
    """
    root = outline.document.root
    if root.content is not None and not isinstance(root.content, dict):
        raise UsageError("the text is not a suite: begin it with 'schema: spbench.suite/1'")
    if isinstance(root.content, dict) and root.flow:
        raise UsageError("the whole suite is in braces; write each of its keys on its own line")


def _reject_brackets(outline: Outline) -> None:
    require_block(outline)
    cases = outline.cases
    if cases is None or cases.content is None or outline.items or cases.content == []:
        return
    problem = "no list" if not isinstance(cases.content, list) else "written in brackets"
    raise UsageError(
        f"line {cases.mark.line}: cases is {problem}; write each case below it on lines of its "
        "own, after a dash"
    )


def _format_entry(draft: CaseDraft, indent: int) -> list[str]:
    data = draft_to_data(draft)
    key_lines = [line for key in data for line in format_key(key, data[key], indent + 2)]
    dash_line = f"{' ' * indent}- {key_lines[0].lstrip()}"
    return [*format_comment(draft, indent), dash_line, *key_lines[1:]]


def _insert_below(outline: Outline, line: int, lines: list[str]) -> str:
    """Insert lines below a line of the text; a last line without line end is kept so."""
    source = outline.source
    offset = source.find_line_start(line + 1)
    inserted_text = source.newline.join(lines)
    if source.find_line(offset) == line:  # the text ends within this line
        return source.text + source.newline * bool(source.read_line(line)) + inserted_text
    return source.text[:offset] + inserted_text + source.newline + source.text[offset:]


def _remove_empty_list(outline: Outline, cases: Node) -> tuple[Outline, int]:
    """Return the text without an empty ``cases`` (``[]``, ``~``), and its line."""
    source = outline.source
    start = source.find_offset(cases.mark)
    end = source.find_offset(cases.end)
    if "#" in source.text[start:end]:
        raise UsageError(f"line {cases.mark.line}: remove the brackets of the empty list of cases")
    text_before = source.text[:start].rstrip()
    return Outline(text_before + source.text[end:]), source.find_line(len(text_before) - 1)


def _append_suite(outline: Outline, draft: CaseDraft, suite: str) -> str:
    """Return the text with the entry at its end, after the missing keys of a suite."""
    indent = _find_indent(outline)
    required_keys = {"schema": SCHEMA, "name": suite}
    head_lines = [
        line
        for key, value in required_keys.items()
        if outline.document.root.find_node((key,)) is None
        for line in format_key(key, value, indent)
    ]
    lines = [*head_lines, " " * indent + "cases:", *_format_entry(draft, indent + 2)]
    source = outline.source
    last_line = source.find_line(len(source.text))
    ends_with_newline = not source.read_line(last_line)
    return _insert_below(outline, last_line, lines) + source.newline * ends_with_newline


def _find_indent(outline: Outline) -> int:
    root = outline.document.root
    return root.mark.column - 1 if root.content else 0


def _list_case_data(outline: Outline) -> list[Any]:
    return [item.data for item in outline.items]


def _check_edit(
    before: str,
    text: str,
    index: int | None,
    draft: CaseDraft | None,
    expected_cases: list[Any],
    line: int = 0,
) -> EditedText:
    """Return an edit if only its entry has changed, and equals the draft.

    Raises:
        UsageError: The edit is not correct.
    """
    harm_error = UsageError(
        "the form cannot change this case without changing the rest of the text (another case may "
        "refer to an anchor in it); edit the text instead"
    )
    try:
        outline = Outline(text)
    except UsageError:
        raise harm_error from None
    cases = _list_case_data(outline)
    old_keys = _read_other_keys(Outline(before))
    new_keys = _read_other_keys(outline)
    if draft is not None and index is not None:
        if not _equals_draft(outline, index, draft):
            raise harm_error
        line = outline.spans[index].first
        del cases[index]
    kept_keys = {key: new_keys.get(key) for key in old_keys}
    if not is_same(cases, expected_cases) or not is_same(old_keys, kept_keys):
        raise harm_error
    byte_order_mark = BYTE_ORDER_MARK if before.startswith(BYTE_ORDER_MARK) else ""
    return EditedText(byte_order_mark + text, line)


def _read_other_keys(outline: Outline) -> dict[str, Any]:
    data = outline.document.root.data or {}
    return {key: value for key, value in data.items() if key != "cases"}


def _equals_draft(outline: Outline, index: int, draft: CaseDraft) -> bool:
    """Return whether an entry of the text equals a draft."""
    if index >= len(outline.items) or not isinstance(outline.items[index].content, dict):
        return False
    actual = parse_draft(outline.items[index], outline.read_comment(index))
    data = draft_to_data(actual)
    return is_same(data, align_keys(data, draft_to_data(draft))) and (
        format_comment(actual, 0) == format_comment(draft, 0)
    )
