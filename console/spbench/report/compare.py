"""Two runs side by side: per case and metric the ratio of medians, and which is better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from spbench.record.runs.history import RunSummary
from spbench.report.model import CasePart, MetricPart
from spbench.report.recorded import RecordedRun
from spbench.suites.expand import show

ALIKE = 0.05
"""Values of which the larger is at most this share above the smaller are alike."""

Outcome = Literal["better", "worse", "alike", "differs"]
"""What b is, seen from a; ``differs`` where neither direction of the metric is better."""
OUTCOMES: tuple[Outcome, ...] = ("better", "worse", "alike", "differs")


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of one case in both runs.

    Attributes:
        a: The median in run a, in ``unit``; None where it was not measured.
        b: The same of run b.
        ratio: b over a; None where there is none.
        outcome: None where the two cannot be judged.
        reason: Why there is no ratio or no outcome.
    """

    case: str
    metric: str
    unit: str
    better: str
    a: float | None
    b: float | None
    ratio: float | None
    outcome: Outcome | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class CasePair:
    """A case that is in both runs.

    Attributes:
        differences: What makes the two unlike although they share an id: parameters, ranks, the
            benchmark; one short clause each.
        rows: One a metric that either run has.
    """

    id: str
    status_a: str
    status_b: str
    differences: tuple[str, ...]
    rows: tuple[MetricRow, ...]

    @property
    def remarks(self) -> tuple[str, ...]:
        """The remarks on each row: verdicts that are not passed, and differences."""
        if self.status_a == self.status_b == "passed":
            return self.differences
        return (f"{self.status_a} in a, {self.status_b} in b", *self.differences)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs: the cases of both in a's order, and the ids that only one of them has."""

    a: RunSummary
    b: RunSummary
    cases: tuple[CasePair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def rows(self) -> Iterator[MetricRow]:
        """The rows of all cases."""
        return (row for pair in self.cases for row in pair.rows)

    @property
    def tally(self) -> str:
        """The number of metrics of each outcome: ``3 better, 1 worse, 8 alike``."""
        counts = Counter(row.outcome for row in self.rows)
        told = [f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]]
        if counts[None]:
            told.append(f"{counts[None]} not judged")
        return ", ".join(told) or "nothing measured"


def compare(a: RecordedRun, b: RecordedRun) -> RunComparison:
    """Compare what two runs measured."""
    return RunComparison(
        a=a.summary,
        b=b.summary,
        cases=tuple(_pair(case, b.cases[id_]) for id_, case in a.cases.items() if id_ in b.cases),
        only_a=tuple(id_ for id_ in a.cases if id_ not in b.cases),
        only_b=tuple(id_ for id_ in b.cases if id_ not in a.cases),
    )


def _pair(a: CasePart, b: CasePart) -> CasePair:
    unfit = [f"{why} in {run}" for run, case in (("a", a), ("b", b)) if (why := _unfit(case))]
    return CasePair(
        id=a.id,
        status_a=a.status,
        status_b=b.status,
        differences=tuple(_differences(a, b)),
        rows=tuple(
            _row(a.id, name, a.metrics.get(name), b.metrics.get(name), " and ".join(unfit))
            for name in dict.fromkeys((*a.metrics, *b.metrics))
        ),
    )


def _unfit(case: CasePart) -> str | None:
    """Why a case's numbers are no results; one that failed an expectation alone has results."""
    failed = [check.name for check in case.checks if check.status == "failed"]
    if failed:
        return f"check {failed[0]} failed"
    return None if case.status in ("passed", "failed") else case.status


def _differences(a: CasePart, b: CasePart) -> Iterator[str]:
    if a.benchmark != b.benchmark:
        yield f"{a.benchmark} in a, {b.benchmark} in b"
    if a.np != b.np:
        yield f"{a.np} ranks in a, {b.np} in b"
    for name, value in a.params.items():
        other = b.params.get(name)
        if None not in (value, other) and value != other:
            yield f"{name} {show(value)} in a, {show(other)} in b"
    for run, mine, others in (("a", a.params, b.params), ("b", b.params, a.params)):
        alone = [
            f"{name}={show(value)}"
            for name, value in mine.items()
            if value is not None and others.get(name) is None
        ]
        if alone:
            yield f"only in {run}: {', '.join(alone)}"


def _row(case: str, name: str, a: MetricPart | None, b: MetricPart | None, unfit: str) -> MetricRow:
    known = b or a
    assert known is not None, "a row is made for a metric that a run has"
    row = MetricRow(
        case=case,
        metric=name,
        unit=known.unit,
        better=known.better,
        a=a.value if a else None,
        b=b.value if b else None,
        ratio=None,
        outcome=None,
        reason=unfit or None,
    )
    if a is None or b is None:
        return replace(row, reason=f"not measured in {'a' if a is None else 'b'}")
    if a.unit != b.unit:
        return replace(row, reason=f"in {a.unit} in a, in {b.unit} in b")
    no_ratio = _no_ratio(a.value, b.value)
    return replace(
        row,
        ratio=None if no_ratio else b.value / a.value,
        outcome=None if unfit else _outcome(a.value, b.value, known.better),
        reason=unfit or no_ratio,
    )


def _no_ratio(a: float, b: float) -> str | None:
    zero = [run for run, value in (("a", a), ("b", b)) if value == 0]
    if zero:
        return "0 in " + " and ".join(zero)
    if a < 0 and b < 0:
        return "below 0 in a and b"
    return "of opposite signs" if a < 0 or b < 0 else None


def _outcome(a: float, b: float, better: str) -> Outcome:
    if abs(b - a) <= ALIKE * min(abs(a), abs(b)):
        return "alike"
    if better == "none":
        return "differs"
    return "better" if (b < a) == (better == "lower") else "worse"
