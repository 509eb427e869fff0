"""References of expectations to cases: ``case(NAME)`` becomes the id of a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spbench.errors import did_you_mean
from spbench.suites.case import Case, Expectation
from spbench.suites.expectations import describe_unknown_metric, list_metric_names
from spbench.suites.expressions.expression import CaseMetric, ExpressionError, parse_expression
from spbench.suites.file_errors import FileErrors
from spbench.suites.yaml_nodes import KeyPath

_MAX_SHOWN = 3
"""Names in a message; the number of further ones follows."""


@dataclass(frozen=True, slots=True)
class ExpandedEntry:
    """The cases of an entry, with the entry's path in the file."""

    path: KeyPath
    cases: Sequence[Case]


def resolve_references(
    entries: Sequence[ExpandedEntry], names: Sequence[str], errors: FileErrors
) -> list[Case]:
    """Return the cases of all entries, with ids of cases in their expressions.

    Args:
        entries: The entries that could be expanded.
        names: The names of all entries, including those with errors.
        errors: Collects errors: names of no case or of several, and unknown metrics.
    """
    cases = [case for entry in entries for case in entry.cases]
    if not any(expectation.expression for case in cases for expectation in case.expect):
        return cases
    case_index = _CaseIndex(cases, names)
    return [
        _resolve_case(case, entry.path, case_index, errors)
        for entry in entries
        for case in entry.cases
    ]


def _resolve_case(case: Case, path: KeyPath, case_index: _CaseIndex, errors: FileErrors) -> Case:
    expect = (
        _resolve_expectation(expectation, case, path, case_index, errors)
        for expectation in case.expect
    )
    return replace(case, expect=tuple(expect))


def _resolve_expectation(
    expectation: Expectation, case: Case, path: KeyPath, case_index: _CaseIndex, errors: FileErrors
) -> Expectation:
    if expectation.expression is None:
        return expectation
    limit_path: KeyPath = (*path, "expect", expectation.metric, expectation.op)
    expression = parse_expression(expectation.expression)
    try:
        ids = tuple(case_index.find_id(metric, case) for metric in expression.metrics)
    except ExpressionError as error:
        errors.add_in_text(limit_path, error.position, f"{expectation.op} is no limit: {error}")
        return expectation
    return replace(expectation, expression=expression.substitute_cases(ids))


class _CaseIndex:
    """The cases of a suite by id and by name."""

    def __init__(self, cases: Sequence[Case], names: Sequence[str]) -> None:
        self._by_id = {case.id: case for case in cases}
        self._by_name: dict[str, list[Case]] = {name: [] for name in names}
        for case in cases:
            self._by_name.setdefault(case.name, []).append(case)

    def find_id(self, metric: CaseMetric, referrer: Case) -> str:
        """Return the id of the case that a metric in an expectation belongs to.

        Args:
            metric: The metric.
            referrer: The case with the expectation.

        Raises:
            ExpressionError: No case or several cases match, or the case has no such metric.
        """
        case = self._by_id.get(metric.case) or self._find_by_name(metric, referrer)
        if case is None:  # its entry has errors, which are reported elsewhere
            return metric.case
        names = list_metric_names(case.entry, case.params)
        if problem := describe_unknown_metric(case.entry, names, metric.metric):
            raise ExpressionError(problem, metric.metric_start)
        return case.id

    def _find_by_name(self, metric: CaseMetric, referrer: Case) -> Case | None:
        """Return the case of a name that agrees with the referrer in its swept values."""
        name, labels_by_key = _split_id(metric.case)
        cases = self._by_name.get(name)
        if cases is None:
            names = [*self._by_id, *self._by_name]
            hint = did_you_mean(metric.case, names)
            hint = hint or f" (known: {_shorten_list([*self._by_name])})"
            raise ExpressionError(f"no case is called {metric.case!r}{hint}", metric.name_span[0])
        if not cases:
            return None
        matches = [
            case for case in cases if labels_by_key.items() <= _list_labels_by_key(case).items()
        ]
        if len(matches) > 1:
            matches = [
                case for case in matches if _agrees_in_swept_keys(case, referrer, labels_by_key)
            ]
        if len(matches) != 1:
            message = _describe_mismatch(metric.case, cases, matches)
            raise ExpressionError(message, metric.name_span[0])
        return matches[0]


def _describe_mismatch(name: str, cases: Sequence[Case], matches: Sequence[Case]) -> str:
    if matches:
        ids = [case.id for case in matches]
        problem = f"several cases are {name!r} here ({_shorten_list(ids)})"
    else:
        ids = [case.id for case in cases]
        problem = (
            f"no case of {name!r} has the same values as this one (there are {_shorten_list(ids)})"
        )
    return f'{problem}; name one by its id in quotes, as case("{cases[0].id}")'


def _shorten_list(names: Sequence[str]) -> str:
    more_text = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(names[:_MAX_SHOWN]) + more_text


def _split_id(case: str) -> tuple[str, dict[str, str]]:
    """Return the name in an id, and the labels of its swept values by key."""
    name, bracket, labels_text = case.partition("[")
    keys_and_labels = labels_text.removesuffix("]").split(",") if bracket else []
    return name, dict(key_and_label.partition("=")[::2] for key_and_label in keys_and_labels)


def _list_labels_by_key(case: Case) -> dict[str, str]:
    return _split_id(case.id)[1]


def _agrees_in_swept_keys(case: Case, referrer: Case, labels_by_key: Mapping[str, str]) -> bool:
    """Return whether a case agrees with the referrer in its swept keys."""
    compared_keys = _list_labels_by_key(case).keys() - labels_by_key.keys()
    return all(
        _find_value(case, key, case) == _find_value(referrer, key, case) for key in compared_keys
    )


def _find_value(case: Case, key: str, other: Case) -> Any:
    """Return the value of a key in a case, or in another case if it has none."""
    if key == "np":
        return case.np
    param = case.entry.find_param(key)
    name = param.name if param else key
    return case.params[name] if name in case.params else other.params.get(name)
