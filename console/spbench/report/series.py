"""A metric over runs, and over a swept parameter within one run: points that a plot can show."""

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
        x: Seconds since the epoch, or the parameter's value; of a series that is not ``numeric``
            the place of its label, counted from 0.
        label: The run's id, or the parameter's value as its case's id shows it.
        y: The median, in the series' unit.
        low: The least sample; None of a single one.
        high: The 95th percentile of the samples; None of a single one.
        status: The verdict of the case that it comes from.
    """

    x: float
    label: str
    y: float
    low: float | None
    high: float | None
    run: str
    case: str
    status: str


@dataclass(frozen=True, slots=True)
class Series:
    """Points in the order of x.

    Attributes:
        name: What tells it from the others: ``slice_method=square``; the case's where it is alone.
        numeric: Whether x is to scale; else it only numbers the labels.
    """

    name: str
    metric: str
    unit: str
    better: str
    numeric: bool
    points: tuple[Point, ...]


def build_run_series(runs: Iterable[RecordedRun], case_id: str, metric: str) -> Series:
    """Return a case's metric over runs, the oldest first; runs that lack it are left out.

    x is when the run started. Where a run.json does not say that, x numbers the runs. Points in
    another unit than the newest run's are left out.
    """
    found = [
        (run, run.cases[case_id], run.cases[case_id].metrics[metric])
        for run in runs
        if case_id in run.cases and metric in run.cases[case_id].metrics
    ]
    found.sort(key=lambda item: (item[0].summary.started or 0.0, item[0].summary.id))
    newest = found[-1][2] if found else None
    found = [item for item in found if newest and item[2].unit == newest.unit]
    numeric = all(run.summary.started is not None for run, _, _ in found)
    points = [
        _point(run, case, of, run.summary.started if numeric else None, at, run.summary.id)
        for at, (run, case, of) in enumerate(found)
    ]
    return _series(case_id, metric, newest, numeric, points)


def find_swept_parameters(run: RecordedRun, case_name: str) -> list[str]:
    """Return the parameters in which the cases of a name differ, in the order of their ids.

    The ids name what the suite sweeps; parameters that only follow from those are left out. ``np``
    is the number of ranks.
    """
    cases = [case for case in run.cases.values() if case.name == case_name]
    named = dict.fromkeys(key for case in cases for key in _swept(case))
    keys = named or dict.fromkeys(key for case in cases for key in (*case.params, RANKS))
    return [key for key in keys if len({_text(case, key) for case in cases}) > 1]


def build_parameter_series(
    run: RecordedRun, case_name: str, metric: str, parameter: str
) -> list[Series]:
    """Return a metric over a swept parameter: one series for each combination of the others.

    x is the parameter's value where all of them are numbers (sizes are, in bytes), else its place
    among the values as they first come. Parameters that go in step with it (``zip`` in a suite)
    make no series of their own.
    """
    cases = [case for case in run.cases.values() if case.name == case_name]
    others = [
        key
        for key in find_swept_parameters(run, case_name)
        if key != parameter and not _follows(cases, parameter, key)
    ]
    labels = list(dict.fromkeys(_text(case, parameter) for case in cases))
    numeric = all(_is_number(_value(case, parameter)) for case in cases)
    groups: dict[str, list[Point]] = {}
    of: MetricPart | None = None
    for case in cases:
        if metric in case.metrics:
            of = case.metrics[metric]
            label = _text(case, parameter)
            x = float(_value(case, parameter)) if numeric else None
            name = ",".join(f"{key}={_text(case, key)}" for key in others) or case_name
            point = _point(run, case, of, x, labels.index(label), label)
            groups.setdefault(name, []).append(point)
    return [_series(name, metric, of, numeric, points) for name, points in groups.items()]


def _point(
    run: RecordedRun, case: CasePart, of: MetricPart, x: float | None, at: int, label: str
) -> Point:
    low, high = (of.min, of.p95) if of.n > 1 else (None, None)
    place = float(at) if x is None else x
    return Point(place, label, of.value, low, high, run.summary.id, case.id, case.status)


def _series(
    name: str, metric: str, of: MetricPart | None, numeric: bool, points: Sequence[Point]
) -> Series:
    unit, better = (of.unit, of.better) if of else ("", "none")
    ordered = tuple(sorted(points, key=lambda point: point.x))
    return Series(name, metric, unit, better, numeric, ordered)


def _swept(case: CasePart) -> dict[str, str]:
    """The keys and values within the brackets of a case's id."""
    inner = case.id.removeprefix(case.name)
    if not (inner.startswith("[") and inner.endswith("]")):
        return {}
    pairs = (word.partition("=") for word in inner[1:-1].split(","))
    return {key: shown for key, _, shown in pairs if key in case.params or key == RANKS}


def _value(case: CasePart, key: str) -> Any:
    return case.np if key == RANKS and RANKS not in case.params else case.params.get(key)


def _text(case: CasePart, key: str) -> str:
    return _swept(case).get(key) or format_label(_value(case, key))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _follows(cases: Sequence[CasePart], parameter: str, other: str) -> bool:
    """Whether each value of a parameter comes with one value of the other."""
    met = {(_text(case, parameter), _text(case, other)) for case in cases}
    return len(met) == len({first for first, _ in met})
