"""Preview of a suite's head: the resulting text, its problems and the cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from spbench.errors import SpbenchError
from spbench.suites.edit.compose import EditedText
from spbench.suites.edit.head import HeadDraft
from spbench.suites.edit.outline import Outline, lacks_only_cases
from spbench.suites.file_errors import CaseError
from spbench.suites.loader import check_text
from spbench.suites.yaml_nodes import Mark
from spbench.tui.suites.form.preview import ForecastSuite, Preview

WriteHead = Callable[[HeadDraft], EditedText]
"""Writes a head into the edited text; raises UsageError if that is impossible."""


def build_suite_preview(
    draft: HeadDraft, write: WriteHead, path: Path, forecast: ForecastSuite
) -> Preview:
    """Return the preview of a head.

    Args:
        draft: The head.
        write: Writes it into the text of the suite.
        path: The file of the suite.
        forecast: Returns the forecast of a suite.
    """
    try:
        edited = write(draft)
    except SpbenchError as error:
        return Preview(None, problems=(str(error),))
    outline = Outline(edited.text)
    first_line = outline.document.root.mark.line  # below the comment at the start of the file
    last_line = _find_last_line(outline)
    lines = "\n".join(edited.text.splitlines()[first_line - 1 : last_line]).rstrip()
    checked_text = check_text(edited.text, path)
    if lacks_only_cases(checked_text, edited.text):
        return Preview(edited, lines, first_line)
    suite = checked_text.suite
    if suite is not None:
        duration = forecast(suite).estimate.total_text
        return Preview(edited, lines, first_line, cases=suite.cases, duration=duration)
    # Errors in cases are not those of the form.
    head_errors = [error for error in checked_text.diagnostics if error.line <= last_line]
    case_errors = [error for error in checked_text.case_errors if error.default_path is not None]
    has_other_errors = {error.diagnostic for error in case_errors} < set(head_errors)
    return Preview(
        edited,
        lines,
        first_line,
        tuple(error.message for error in head_errors),
        case_errors,
        () if has_other_errors else _list_conflicts(case_errors, outline),
    )


def _list_conflicts(case_errors: Sequence[CaseError], outline: Outline) -> Sequence[str]:
    return [f"{outline.find_name(error.index)}: {error.message}" for error in case_errors]


def _find_last_line(outline: Outline) -> int:
    """Return the last line above ``cases:``, or of a text without it."""
    keys = outline.document.root.content
    if isinstance(keys, dict) and "cases" in keys:
        mark: Mark = keys["cases"][0]
        return mark.line - 1
    return len(outline.source.text.splitlines())
