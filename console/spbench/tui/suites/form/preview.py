"""The text that a form's draft would write, and the loader's problems and cases of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spbench.engine.estimate import RunEstimate
from spbench.errors import SpbenchError
from spbench.suites.case import Case, Suite
from spbench.suites.edit.check import check_text
from spbench.suites.edit.compose import EditedText, insert_case
from spbench.suites.edit.draft import CaseDraft
from spbench.suites.edit.outline import EntryLines, Outline
from spbench_core.quantities import format_quantity

WriteDraft = Callable[[CaseDraft], EditedText]
"""Puts a draft into the text that is edited; UsageError where it cannot."""
EstimateSuite = Callable[[Suite], RunEstimate]
"""Returns the estimated duration of a suite."""


@dataclass(frozen=True, slots=True)
class Preview:
    """A draft as it would stand in the text.

    Attributes:
        edited: The changed text; None where it cannot be changed, for which ``problems`` say why.
        lines: The entry's own lines.
        first: The number of the first of them.
        cases: What the entry expands to; empty where there are problems.
        duration: The estimated duration of these cases in a few words; empty if it is unknown.
    """

    edited: EditedText | None
    lines: str = ""
    first_line: int = 1
    problems: Sequence[str] = ()
    cases: Sequence[Case] = ()
    duration: str = ""

    @property
    def summary(self) -> str:
        """The number of cases that the entry makes, that of their ranks, and their duration."""
        ranks = {case.np for case in self.cases}
        if not ranks or self.problems:
            return ""
        known = sorted(np for np in ranks if np is not None)
        said = " or ".join(map(str, known)) if len(known) < 4 else f"{known[0]} to {known[-1]}"
        on = "all slots" if None in ranks else f"{said} rank{'s' * (said != '1')}"
        duration = f", {self.duration}" if self.duration else ""
        return f"{format_quantity(len(self.cases), 'case')} on {on}{duration}"


def build_preview(
    draft: CaseDraft, write: WriteDraft, path: Path, estimate: EstimateSuite
) -> Preview:
    """Return what a draft would write and expand to; ``path`` is the suite's file."""
    try:
        edited = write(draft)
        alone = insert_case("", draft)
    except SpbenchError as error:
        return Preview(None, problems=(str(error),))
    outline = Outline(edited.text)
    span = next(span for span in outline.spans if span.first == edited.line)
    lines = [outline.source.read_line(number) for number in range(span.top, span.last + 1)]
    whole = check_text(edited.text, path)
    problems = tuple(found.message for found in whole.diagnostics if _within(span, found.line))
    # The count is the entry's own, whatever is wrong elsewhere in the file.
    suite = check_text(alone.text, path).suite
    if suite is None:
        return Preview(edited, "\n".join(lines), span.top, problems)
    duration = estimate(suite).short_text
    return Preview(edited, "\n".join(lines), span.top, problems, suite.cases, duration)


def _within(span: EntryLines, line: int) -> bool:
    return span.top <= line <= span.last
