"""What reports say of a run and of its cases, in words that are the same in every format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from spbench.record.number_formatting import counted, number, printable
from spbench.report.model import CasePart, MetricPart
from spbench.report.recorded import RecordedRun
from spbench.report.run_comparison import HEADLINE
from spbench.report.times import seconds_of

BROKEN = frozenset({"error", "timeout"})
"""Cases that came to no result."""
NOT_RUN = frozenset({"cancelled", "skipped", "waiting", "running"})
"""Cases that were never judged."""


def by_urgency(run: RecordedRun) -> list[CasePart]:
    """Return the cases that did not pass, then those that did, each in the suite's order."""
    return sorted(run.cases.values(), key=lambda case: case.word == "passed")


def not_passed(run: RecordedRun) -> list[CasePart]:
    """Return the cases that ran and did not pass, in the suite's order."""
    return [case for case in run.cases.values() if case.status not in NOT_RUN and not passed(case)]


def passed(case: CasePart) -> bool:
    """Whether a case passed."""
    return case.status == "passed"


def sentence(case: CasePart) -> str:
    """Return why a case did not pass, or not at once, in a sentence."""
    if case.word == "flaky":
        before = case.earlier[-1]
        return printable(f"passed at try {case.attempts}, after: {before.reason or before.status}")
    return printable(case.reason or case.status)


def tally(run: RecordedRun) -> str:
    """Return the number of cases of each status, and of expectations that were not judged."""
    counts = Counter(case.word for case in run.cases.values())
    parts = [f"{count} {status}" for status, count in counts.most_common()] or ["no cases"]
    unjudged = sum(
        expectation.status == "skipped"
        for case in run.cases.values()
        for expectation in case.expectations
    )
    parts += [f"{counted(unjudged, 'expectation')} not judged"] if unjudged else []
    return ", ".join(parts)


def unexplained(run: RecordedRun) -> Sequence[str]:
    """Return the errors of a run that no case of it shows: why it is not passed all the same."""
    shown = any(case.status in BROKEN or case.status == "failed" for case in run.cases.values())
    return () if shown or run.summary.verdict == "passed" else run.errors


def headline(case: CasePart) -> tuple[str, MetricPart] | None:
    """Return the metric that stands for a case, with its name; None where it measured nothing."""
    if HEADLINE in case.metrics:
        return HEADLINE, case.metrics[HEADLINE]
    return next(iter(case.metrics.items()), None)


def figure(value: float | None, unit: str = "") -> str:
    """Return a value with its unit, in three figures; nothing for what is not known."""
    if value is None:
        return ""
    return f"{number(value)} {unit}" if unit not in ("", "1") else number(value)


def metric_lines(case: CasePart) -> Iterator[str]:
    """Yield a line a metric: its median, p95 and limit."""
    for name, metric in case.metrics.items():
        more = f", p95 {number(metric.p95)}, n {metric.n}" if metric.n > 1 else ""
        limit = case.limits.get(name)
        bound = f", limit {figure(limit.value)}" if limit and limit.value is not None else ""
        yield printable(f"{name} {figure(metric.value, metric.unit)}{more}{bound}")


def duration(case: CasePart) -> float | None:
    """Return the seconds that a case took, None where it did not begin or end."""
    started, finished = seconds_of(case.started), seconds_of(case.finished)
    return None if started is None or finished is None else max(0.0, finished - started)
