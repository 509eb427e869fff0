"""Points of plots: a metric over runs, or over a swept parameter of one run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spbench.report.model import CasePart, MetricPart
from spbench.report.recorded import RecordedRun
from spbench.suites.expand import format_label

RANKS = "np"
"""The number of ranks, which a suite may sweep like a parameter."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric.

    Attributes:
        x: Seconds since the epoch, or the parameter's value. In a series that is not ``numeric``,
            the index of its label.
        label: The run's id, or the parameter's value in the format of case ids.
        y: The median, in the series' unit.
        low: The smallest sample; None if there is only one.
        high: The 95th percentile of the samples; None if there is only one.
        status: The status of its case.
        status_text: The status for people, such as ``fault found``.
    """

    x: float
    label: str
    y: float
    low: float | None
    high: float | None
    run: str
    case: str
    status: str
    status_text: str


@dataclass(frozen=True, slots=True)
class Series:
    """Points in the order of x.

    Attributes:
        name: The other parameters, such as ``slice_method=square``; or the case's name if it is
            the only series.
        numeric: Whether x is a number; otherwise it is the index of the label.
    """

    name: str
    metric: str
    unit: str
    better: str
    numeric: bool
    points: tuple[Point, ...]


def build_run_series(runs: Iterable[RecordedRun], case_id: str, metric: str) -> Series:
    """Return a case's metric over runs, the oldest first.

    x is the start time of the run. If a start time is unknown, x is the index of the run. Runs
    without the metric, or with another unit than in the newest run, are excluded.
    """
    with_metric = [
        run for run in runs if case_id in run.cases and metric in run.cases[case_id].metrics
    ]
    with_metric.sort(key=lambda run: (run.summary.started or 0.0, run.summary.id))
    newest = with_metric[-1].cases[case_id].metrics[metric] if with_metric else None
    comparable = [
        run
        for run in with_metric
        if newest and run.cases[case_id].metrics[metric].unit == newest.unit
    ]
    numeric = all(run.summary.started is not None for run in comparable)

    points = []
    for index, run in enumerate(comparable):
        case = run.cases[case_id]
        x = run.summary.started if numeric else None
        points.append(_make_point(run, case, case.metrics[metric], x, index, run.summary.id))
    return _make_series(case_id, metric, newest, numeric, points)


def find_swept_parameters(run: RecordedRun, case_name: str) -> list[str]:
    """Return the parameters in which the cases of a name differ, in the order of ids.

    Ids contain the swept parameters, and no parameters that follow from these. ``np`` is the number
    of ranks.
    """
    cases = [case for case in run.cases.values() if case.name == case_name]
    names = dict.fromkeys(name for case in cases for name in _parse_id(case))
    if not names:
        names = dict.fromkeys(name for case in cases for name in (*case.params, RANKS))
    return [name for name in names if len({_format_param(case, name) for case in cases}) > 1]


def build_parameter_series(
    run: RecordedRun, case_name: str, metric: str, parameter: str
) -> list[Series]:
    """Return a metric over a parameter, with a series per combination of the others.

    x is the parameter's value if all values are numbers (sizes are in bytes), or otherwise the
    index of the value in the order of the cases. Parameters that change together with it (``zip``
    in a suite) do not split a series.
    """
    cases = [case for case in run.cases.values() if case.name == case_name]
    other_parameters = [
        name_in_suite
        for name_in_suite in find_swept_parameters(run, case_name)
        if name_in_suite != parameter and not _follows(cases, parameter, name_in_suite)
    ]
    labels = list(dict.fromkeys(_format_param(case, parameter) for case in cases))
    numeric = all(_is_number(_get_param(case, parameter)) for case in cases)
    points_by_name: dict[str, list[Point]] = {}
    metric_part: MetricPart | None = None
    for case in cases:
        if metric in case.metrics:
            metric_part = case.metrics[metric]
            label = _format_param(case, parameter)
            x = float(_get_param(case, parameter)) if numeric else None
            name = (
                ",".join(
                    f"{name_in_suite}={_format_param(case, name_in_suite)}"
                    for name_in_suite in other_parameters
                )
                or case_name
            )
            point = _make_point(run, case, metric_part, x, labels.index(label), label)
            points_by_name.setdefault(name, []).append(point)
    return [
        _make_series(name, metric, metric_part, numeric, points)
        for name, points in points_by_name.items()
    ]


def _make_point(
    run: RecordedRun,
    case: CasePart,
    metric_part: MetricPart,
    x: float | None,
    index: int,
    label: str,
) -> Point:
    low, high = (metric_part.min, metric_part.p95) if metric_part.n > 1 else (None, None)
    if x is None:
        x = float(index)
    return Point(
        *(x, label, metric_part.value, low, high, run.summary.id),
        *(case.id, case.status, case.status_text),
    )


def _make_series(
    name: str, metric: str, metric_part: MetricPart | None, numeric: bool, points: Sequence[Point]
) -> Series:
    unit, better = (metric_part.unit, metric_part.better) if metric_part else ("", "none")
    ordered = tuple(sorted(points, key=lambda point: point.x))
    return Series(name, metric, unit, better, numeric, ordered)


def _parse_id(case: CasePart) -> dict[str, str]:
    """Return the parameters in the brackets of a case's id, with their text."""
    inner = case.id.removeprefix(case.name)
    if not (inner.startswith("[") and inner.endswith("]")):
        return {}
    assignments = (assignment.partition("=") for assignment in inner[1:-1].split(","))
    return {name: text for name, _, text in assignments if name in case.params or name == RANKS}


def _get_param(case: CasePart, name: str) -> Any:
    return case.np if name == RANKS and RANKS not in case.params else case.params.get(name)


def _format_param(case: CasePart, name: str) -> str:
    return _parse_id(case).get(name) or format_label(_get_param(case, name))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _follows(cases: Sequence[CasePart], parameter: str, other_parameter: str) -> bool:
    """Return whether a parameter determines the other one."""
    value_pairs = {
        (_format_param(case, parameter), _format_param(case, other_parameter)) for case in cases
    }
    return len(value_pairs) == len({text for text, _ in value_pairs})
