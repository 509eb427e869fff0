"""The head of a page: the status of the run, its facts, errors and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from spbench.record.number_formatting import NOISY, format_status
from spbench.report.comparison.model import JudgementKind, RunComparison
from spbench.report.comparison.rows import OutcomeLabel
from spbench.report.comparison.unjudged import find_not_slower
from spbench.report.formats.case_text import format_tally
from spbench.report.formats.page.markup import NOTHING, Markup, join_markup, tag
from spbench.report.model import CasePart
from spbench.report.recorded import RecordedRun
from spbench.report.times import format_day_and_time

MAX_NOTES = 20
"""The number of errors, and of findings, that are shown."""


class LinkTarget(Protocol):
    """A part of the page to which the head links."""

    @property
    def anchor(self) -> str: ...

    @property
    def heading(self) -> str: ...


def render_head(
    run: RecordedRun, parts: Sequence[LinkTarget], comparison: RunComparison | None = None
) -> Markup:
    """Return the head, with links to the parts.

    Args:
        run: The run.
        parts: The parts of the page.
        comparison: The comparison with a baseline. The head shows if it judged no case.
    """
    summary = run.summary
    status = tag(
        "span",
        format_status(summary.status, summary.status_text),
        class_=f"verdict {summary.status}",
    )
    return tag(
        "header",
        tag("h1", status, *_note_unjudged(comparison), " ", summary.suite),
        tag("p", *_describe_run(run)),
        _render_status_bar(run),
        *_render_notes(run.errors, "error"),
        *_render_notes([run.left_out] if run.left_out else [], "error"),
        *_render_notes(run.findings),
        tag("nav", *(tag("a", part.heading, href=f"#{part.anchor}") for part in parts)),
    )


def _note_unjudged(comparison: RunComparison | None) -> Iterator[Markup]:
    """Yield a note behind the status if the comparison judged no case."""
    if comparison is not None and not (
        comparison.list_judged(JudgementKind.JUDGED)
        or comparison.list_judged(JudgementKind.BROKEN)
        or find_not_slower(comparison)
    ):
        note = f", {OutcomeLabel.NOT_JUDGED} against {comparison.a.id}"
        yield tag("span", note, class_=f"verdict {OutcomeLabel.NOT_JUDGED.style}")


def render_case_status(case: CasePart) -> Markup:
    """Return a case's status as a badge, flaky if it passed only in a later attempt.

    A sign follows if its times are noisy. The reasons are in the findings.
    """
    badge = tag(
        "span", format_status(case.status, case.status_text), class_=f"verdict {case.status}"
    )
    if not case.noisy:
        return badge
    return join_markup([badge, tag("span", f" {NOISY} noisy", class_="soft")])


def _describe_run(run: RecordedRun) -> Iterator[str]:
    summary = run.summary
    yield f"{format_tally(run)}. Run "
    yield tag("code", summary.id)
    yield f", {format_day_and_time(summary.started)}"
    if summary.duration_s is not None:
        yield f", {summary.duration_s:.1f} s"
    if summary.host:
        yield ", started on "
        yield tag("code", summary.host)


def _render_status_bar(run: RecordedRun) -> Markup:
    """Return a bar with the share of each status."""
    counts = Counter(case.status for case in run.cases.values())
    if not counts:
        return NOTHING
    pieces = (
        tag("i", class_=status, style=f"width:{100 * count / len(run.cases):.2f}%")
        for status, count in counts.most_common()
    )
    return tag("div", *pieces, class_="share", role="img", aria_label=format_tally(run))


def _render_notes(lines: Iterable[str], css_class: str = "") -> Iterator[Markup]:
    notes = list(lines)
    for note in notes[:MAX_NOTES]:
        yield tag("p", note, class_=f"note {css_class}".strip())
    if len(notes) > MAX_NOTES:
        yield tag(
            "p", join_markup([f"and {len(notes) - MAX_NOTES} more"]), class_=f"note {css_class}"
        )
