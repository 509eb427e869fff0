"""Finds the cases that expectations refer to: ``case(NAME)`` becomes the id of one case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spbench.errors import did_you_mean
from spbench.suites.case import Case, Expectation
from spbench.suites.expectations import describe_unknown_metric, list_metric_names
from spbench.suites.expression import CaseMetric, ExpressionError, parse_expression
from spbench.suites.findings import Findings
from spbench.suites.yaml_nodes import KeyPath

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ExpandedEntry:
    """The cases of one entry, and the entry's place in the file."""

    path: KeyPath
    cases: Sequence[Case]


def resolve_references(
    entries: Sequence[ExpandedEntry], names: Sequence[str], findings: Findings
) -> list[Case]:
    """Return the cases of all entries, each expression naming the cases of the run by their ids.

    Args:
        entries: The entries that could be expanded.
        names: The names of all entries; one whose cases have errors of their own is not unknown.
        findings: Told of names that no case has, or several, and of figures that theirs lack.
    """
    cases = [case for entry in entries for case in entry.cases]
    if not any(item.expression for case in cases for item in case.expect):
        return cases
    index = _Index(cases, names)
    return [
        _referred(case, entry.path, index, findings) for entry in entries for case in entry.cases
    ]


def _referred(case: Case, path: KeyPath, index: _Index, findings: Findings) -> Case:
    expect = (_found(item, case, path, index, findings) for item in case.expect)
    return replace(case, expect=tuple(expect))


def _found(
    item: Expectation, case: Case, path: KeyPath, index: _Index, findings: Findings
) -> Expectation:
    if item.expression is None:
        return item
    place: KeyPath = (*path, "expect", item.metric, item.op)
    expression = parse_expression(item.expression)
    try:
        ids = tuple(index.find(figure, case) for figure in expression.metrics)
    except ExpressionError as error:
        findings.add_in_text(place, error.position, f"{item.op} is no limit: {error}")
        return item
    return replace(item, expression=expression.substitute_cases(ids))


class _Index:
    """The cases of a suite by id and by name."""

    def __init__(self, cases: Sequence[Case], names: Sequence[str]) -> None:
        self._by_id = {case.id: case for case in cases}
        self._by_name: dict[str, list[Case]] = {name: [] for name in names}
        for case in cases:
            self._by_name.setdefault(case.name, []).append(case)

    def find(self, figure: CaseMetric, of: Case) -> str:
        """Return the id of the case that a figure in an expectation of a case is one of.

        Raises:
            ExpressionError: There is none, there are several, or it has no such figure.
        """
        case = self._by_id.get(figure.case) or self._like(figure, of)
        if case is None:  # its entry has errors of its own
            return figure.case
        known = list_metric_names(case.entry, case.params)
        if problem := describe_unknown_metric(case.entry, known, figure.metric):
            raise ExpressionError(problem, figure.metric_start)
        return case.id

    def _like(self, figure: CaseMetric, of: Case) -> Case | None:
        name, fixed = _parts(figure.case)
        known = self._by_name.get(name)
        if known is None:
            words = [*self._by_id, *self._by_name]
            near = did_you_mean(figure.case, words) or f" (known: {_some([*self._by_name])})"
            raise ExpressionError(f"no case is called {figure.case!r}{near}", figure.name_span[0])
        if not known:
            return None
        fitting = [case for case in known if fixed.items() <= _swept(case).items()]
        if len(fitting) > 1:
            fitting = [case for case in fitting if _alike(case, of, fixed)]
        if len(fitting) != 1:
            raise ExpressionError(_which(figure.case, known, fitting), figure.name_span[0])
        return fitting[0]


def _which(name: str, known: Sequence[Case], fitting: Sequence[Case]) -> str:
    if fixed := [case.id for case in fitting]:
        told = f"several cases are {name!r} here ({_some(fixed)})"
    else:
        ids = [case.id for case in known]
        told = f"no case of {name!r} has the same values as this one (there are {_some(ids)})"
    return f'{told}; name one by its id in quotes, as case("{known[0].id}")'


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more


def _parts(case: str) -> tuple[str, dict[str, str]]:
    """Return the name in an id, and its swept values as the id shows them."""
    name, bracket, inside = case.partition("[")
    pairs = inside.removesuffix("]").split(",") if bracket else []
    return name, dict(pair.partition("=")[::2] for pair in pairs)


def _swept(case: Case) -> dict[str, str]:
    return _parts(case.id)[1]


def _alike(case: Case, of: Case, fixed: Mapping[str, str]) -> bool:
    """Whether two cases agree in what one sweeps and the other has as well."""
    free = _swept(case).keys() - fixed.keys()
    return all(_value(case, key, case) == _value(of, key, case) for key in free)


def _value(case: Case, key: str, other: Case) -> Any:
    """Return what a case has for a key; where it has none, what the other case has for it."""
    if key == "np":
        return case.np
    param = case.entry.find_param(key)
    name = param.name if param else key
    return case.params[name] if name in case.params else other.params.get(name)
