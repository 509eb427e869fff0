"""Facts about a suite file that is not open, for the start page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content

from spbench.engine.run_estimate import NO_ESTIMATE, UNKNOWN, EstimateSource, RunEstimate
from spbench.errors import UsageError
from spbench.record.number_formatting import GLYPHS, replace_controls, replace_line_controls
from spbench.tui.suites.case_rows import ALL_SLOTS
from spbench.tui.suites.parsed_suite import (
    ParsedSuite,
    estimate_parsed,
    find_rejection_reason,
    parse_text,
)
from spbench.tui.widgets.prose import join_lines
from spbench.tui.widgets.text import cell_width, fit
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.engine.plan import Request
    from spbench.suites.case import Case

_LABEL_WIDTH = 10
_GAP = "  "
_MIN_WIDTH_FOR_BENCHMARKS = 64
"""Cells from which the list of cases names their benchmarks."""
_MIN_SUMMARY_WIDTH = 40
"""Cells next to the list from which it has the summaries of the benchmarks."""
_MEASURES = "what it measures"
_UNTIL_FIRST_RUN = "unknown until a first run"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A suite file as parsed, with the estimated duration.

    Attributes:
        error: Why the file cannot be read; empty if it can.
        parsed: The text; None if the file cannot be read.
        estimate: The estimated durations.
        needs: The devices that some cases need, and why this machine is too small.
    """

    error: str = ""
    parsed: ParsedSuite | None = None
    estimate: RunEstimate = NO_ESTIMATE
    needs: tuple[str, ...] = ()


def read_file_facts(request: Request) -> FileFacts:
    """Return the facts about the suite of a request; call it in a thread."""
    from spbench.suites.loader import read_suite_file

    try:
        text = read_suite_file(request.suite)
    except UsageError as error:
        return FileFacts(str(error))
    parsed = parse_text(text, request)
    return FileFacts("", parsed, estimate_parsed(parsed), tuple(_list_needs(parsed)))


def _list_needs(parsed: ParsedSuite) -> Iterator[str]:
    from spbench.launch.gpu_needs import needs_gpu

    gpu_case_count = sum(map(needs_gpu, parsed.cases))
    if gpu_case_count == len(parsed.cases) > 0:
        yield "a GPU"
    elif gpu_case_count:
        yield f"a GPU for {format_quantity(gpu_case_count, 'case')}"
    reason = find_rejection_reason(parsed)
    if reason is not None:
        yield f"a larger machine: {reason}"


def render_file_facts(facts: FileFacts, width: int) -> Content:
    """Return the description, facts and cases of a file, in ``width`` cells."""
    parsed = facts.parsed
    if parsed is None:
        return Content(facts.error)
    if parsed.problems:
        return _render_errors(parsed)
    suite = parsed.checked_text.suite
    if suite is None:
        return Content("The suite has no cases yet.")
    description = replace_controls(suite.description)
    lines = [Content.styled(description, "bold")] if description else []
    lines += _render_summary(facts, parsed.cases)
    if comment := _find_leading_comment(parsed.text):
        lines += [Content(""), Content.styled(comment, "$text-muted")]
    lines += [Content(""), *_render_cases(parsed.cases, facts.estimate, width)]
    return Content("\n").join(lines)


def _render_errors(parsed: ParsedSuite) -> Content:
    count = format_quantity(len(parsed.problems), "error")
    lines = [Content.styled(f"{GLYPHS['error']} {count}: Enter opens the first", "$text-error")]
    lines += [Content(f"line {problem.line}: {problem.message}") for problem in parsed.problems]
    return Content("\n").join(lines)


def _render_summary(facts: FileFacts, cases: Sequence[Case]) -> Iterator[Content]:
    texts = {
        "cases": f"{len(cases):,} on {_describe_ranks(cases)}",
        "duration": _describe_duration(facts.estimate),
        "needs": "; ".join(facts.needs),
    }
    for label, text in texts.items():
        if text:
            yield Content.assemble((f"{label:<{_LABEL_WIDTH}}", "$text-muted"), text)


def _describe_duration(estimate: RunEstimate) -> str:
    """Return the duration, and when that of unknown cases will be known."""
    if not estimate.counts[EstimateSource.UNKNOWN]:
        return estimate.short_text
    if estimate.seconds is None:
        return _UNTIL_FIRST_RUN
    return f"{estimate.short_text}, known after a first run"


def _describe_ranks(cases: Sequence[Case]) -> str:
    """Return the numbers of ranks of cases, such as ``1 to 9 ranks``."""
    counts = sorted({case.np for case in cases if case.np is not None})
    texts = []
    if len(counts) == 1:
        texts.append(format_quantity(counts[0], "rank"))
    elif counts:
        texts.append(f"{counts[0]:,} to {counts[-1]:,} ranks")
    if any(case.np is None for case in cases):
        texts.append("all slots of the hosts")
    return " or ".join(texts)


def _find_leading_comment(text: str) -> str:
    """Return the comment above the first key, as lines without their signs."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" "))
    return replace_line_controls(join_lines("\n".join(lines)))


def _render_cases(cases: Sequence[Case], estimate: RunEstimate, width: int) -> Iterator[Content]:
    """Yield a heading and a line for each case, with its purpose if there is space."""
    rows = [("case", "benchmark", "ranks", "estimate")]
    for case in cases:
        ranks = ALL_SLOTS if case.np is None else str(case.np)
        case_estimate = estimate.cases.get(case.id)
        duration = UNKNOWN if case_estimate is None else case_estimate.own_text
        rows.append((case.id, case.benchmark, ranks, duration))
    columns = list(zip(*rows, strict=True))
    if width < _MIN_WIDTH_FOR_BENCHMARKS:
        del columns[1]
    other_widths = [max(map(cell_width, column)) for column in columns[1:]]
    gaps = len(_GAP) * len(other_widths)
    name_width = min(max(map(cell_width, columns[0])), width - gaps - sum(other_widths))
    for index, row in enumerate(zip(*columns, strict=True)):
        name, *texts, ranks, duration = row
        cells = [fit(name, name_width), *map(fit, texts, other_widths)]
        cells += [fit(ranks, other_widths[-2], "right"), fit(duration, other_widths[-1], "right")]
        line = Content.styled(_GAP.join(cells), "" if index else "bold $text-muted")
        summary_width = width - line.cell_length - len(_GAP)
        if summary_width >= _MIN_SUMMARY_WIDTH:
            summary = cases[index - 1].entry.summary if index else _MEASURES
            style = "$text-muted" if index else "bold $text-muted"
            line = line + _GAP + Content.styled(fit(summary, summary_width), style)
        yield line
