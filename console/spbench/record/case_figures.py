"""Limits of expectations that depend on measurements of other cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spbench.record.case_state import CaseState
from spbench.suites.expressions.expression import (
    CaseMetric,
    Expression,
    ExpressionError,
    parse_expression,
)
from spbench_core.events.statuses import CaseStatus

Cases = Mapping[str, CaseState]
_STATUS_TEXTS = {CaseStatus.ERROR: "ended in error", CaseStatus.TIMEOUT: "ran out of time"}


class NotReachedError(ExpressionError):
    """A figure of a case that is not part of this run, or was cancelled."""


def read_figure(case: CaseState, metric: str) -> float | None:
    """Return a case's ``metric`` or ``metric.statistic``; None if it was not measured."""
    name, _, statistic = metric.partition(".")
    summary = case.summary(name)
    if summary is None:
        return None
    return summary.p50 if statistic in ("", "value") else float(getattr(summary, statistic))


def evaluate_limit(expression: str, cases: Cases) -> float:
    """Return the value of an expression that is a limit.

    Raises:
        NotReachedError: A case in it is not part of this run, or was cancelled.
        ExpressionError: A case failed, a figure is missing, or the limit is negative.
    """
    limit = parse_expression(expression).evaluate(lambda figure: _find_figure(figure, cases))
    if limit < 0:
        raise ExpressionError(f"it comes to {limit:.4g}, and nothing measured is negative")
    return limit


def _find_figure(figure: CaseMetric, cases: Cases) -> float:
    case = cases.get(figure.case)
    if case is None:
        raise NotReachedError(f"case {figure.case} is not part of this run")
    if case.status == CaseStatus.CANCELLED:
        raise NotReachedError(f"case {figure.case} was cancelled")
    if case.status.is_final and not case.status.is_measured:
        raise ExpressionError(f"case {figure.case} {_STATUS_TEXTS.get(case.status, 'did not run')}")
    if not all(case.measured.passed_by_rank.values()):
        raise ExpressionError(f"a check of case {figure.case} failed, so its numbers do not count")
    value = read_figure(case, figure.metric)
    if value is None:
        raise ExpressionError(f"case {figure.case} has not measured {figure.metric}")
    return value


def is_open(case: CaseState) -> bool:
    """Whether a case must still run. A case that has run may wait to be judged."""
    return not case.status.is_final and not case.complete


def find_ready(cases: Cases, ids: Iterable[str]) -> Iterator[CaseState]:
    """Yield the cases without a final status that can be judged.

    Their ranks have ended, and so have those of the cases to which their expectations refer.
    """
    for case in map(cases.__getitem__, ids):
        if (
            case.status == CaseStatus.RUNNING
            and case.complete
            and not _waits_for_cases(case, cases)
        ):
            yield case


def refers_to_cases(case: CaseState) -> bool:
    """Whether an expectation of a case depends on figures of other cases."""
    return any(item.get("expression") for item in case.identity.expect)


def _waits_for_cases(case: CaseState, cases: Cases) -> bool:
    names = (figure.case for item in case.identity.expect for figure in _list_figures(item))
    return any(name in cases and is_open(cases[name]) for name in names)


def _list_figures(item: Mapping[str, Any]) -> tuple[CaseMetric, ...]:
    expression = _parse_recorded(item.get("expression"))
    return expression.metrics if expression else ()


def _parse_recorded(text: str | None) -> Expression | None:
    try:
        return parse_expression(text) if text else None
    except ExpressionError:  # recorded by another version; its judgement reports the error
        return None
