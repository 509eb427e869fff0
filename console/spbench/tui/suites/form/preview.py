"""Preview of a draft: the resulting text, its problems and its cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spbench.errors import SpbenchError
from spbench.suites.case import Case, Suite
from spbench.suites.edit.compose import EditedText, insert_case
from spbench.suites.edit.draft import CaseDraft, inherit_defaults
from spbench.suites.edit.outline import EntryLines, Outline
from spbench.suites.file_errors import CaseError
from spbench.suites.loader import check_text
from spbench.tui.suites.parsed_suite import SuiteForecast
from spbench_core.number_text import format_quantity

WriteDraft = Callable[[CaseDraft], EditedText]
"""Writes a draft into the edited text; raises UsageError if that is impossible."""
ForecastSuite = Callable[[Suite], SuiteForecast]
"""Returns the forecast of a suite."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The preview of a draft.

    Attributes:
        edited: The changed text; None if it cannot be changed, with the reason in ``problems``.
        lines: The lines of the entry.
        first_line: The number of the first of these lines.
        problems: Error messages.
        case_errors: The errors among them that a field of the form can cure.
        conflicts: Messages on cases that do not fit the new defaults, if there is no other error.
        cases: The cases of the entry; empty if there are problems.
        duration: The estimate in the words of the table's total; empty without one.
        warning: A message if this machine is too small for the cases; otherwise empty.
    """

    edited: EditedText | None
    lines: str = ""
    first_line: int = 1
    problems: Sequence[str] = ()
    case_errors: Sequence[CaseError] = ()
    conflicts: Sequence[str] = ()
    cases: Sequence[Case] = ()
    duration: str = ""
    warning: str = ""

    @property
    def summary(self) -> str:
        """The numbers of cases and ranks, and the duration; empty if there are problems."""
        rank_counts = {case.np for case in self.cases}
        if not rank_counts or self.problems:
            return ""
        known_rank_counts = sorted(np for np in rank_counts if np is not None)
        if rank_counts == {None}:
            ranks = "all slots"
        elif None in rank_counts:
            ranks = f"{', '.join(map(str, known_rank_counts))} ranks or all slots"
        elif known_rank_counts == [1]:
            ranks = "1 rank"
        elif len(known_rank_counts) < 4:
            ranks = " or ".join(map(str, known_rank_counts)) + " ranks"
        else:
            ranks = f"{known_rank_counts[0]} to {known_rank_counts[-1]} ranks"
        duration = f", {self.duration}" if self.duration else ""
        return f"{format_quantity(len(self.cases), 'case')} on {ranks}{duration}"


def build_preview(
    draft: CaseDraft,
    write: WriteDraft,
    path: Path,
    forecast: ForecastSuite,
    defaults: Any = None,
) -> Preview:
    """Return the preview of a draft.

    Args:
        draft: The draft.
        write: Writes it into the text of the suite.
        path: The file of the suite.
        forecast: Returns the forecast of a suite.
        defaults: The data of the suite's ``defaults:``.
    """
    try:
        edited = write(draft)
        single_case = insert_case("", inherit_defaults(draft, defaults))
    except SpbenchError as error:
        return Preview(None, problems=(str(error),))
    outline = Outline(edited.text)
    index = next(i for i, span in enumerate(outline.spans) if span.first == edited.line)
    span = outline.spans[index]
    lines = [outline.source.read_line(number) for number in range(span.top, span.last + 1)]
    checked_text = check_text(edited.text, path)
    case_errors = [error for error in checked_text.case_errors if error.index == index]
    inherited_messages = (error.message for error in case_errors if error.default_path is not None)
    own_messages = (
        error.message for error in checked_text.diagnostics if _contains(span, error.line)
    )
    problems = tuple(dict.fromkeys([*own_messages, *inherited_messages]))
    # Examined separately, so that errors elsewhere in the file do not matter.
    suite = check_text(single_case.text, path).suite
    if suite is None:
        return Preview(edited, "\n".join(lines), span.top, problems, case_errors)
    suite_forecast = forecast(suite)
    return Preview(
        edited,
        "\n".join(lines),
        span.top,
        problems,
        case_errors,
        cases=suite.cases,
        duration=suite_forecast.estimate.total_text,
        warning=suite_forecast.excess,
    )


def _contains(span: EntryLines, line: int) -> bool:
    return span.top <= line <= span.last
