"""Expansion of a case entry to its cases: sweeps, exclusions and ids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spbench.suites.case import Case, Expectation, RepeatPolicy, ScalingSeries
from spbench.suites.findings import Findings
from spbench.suites.settings import LaunchSettings
from spbench.suites.yaml_nodes import KeyPath
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.scaling import RankCounts, scale_cases
from spbench_core.number_text import format_quantity

MAX_CASES = 10_000
"""The limit of cases of one entry."""
MAX_RANKS = 1_000_000
"""The limit of ranks of a case; a larger number is probably a mistake."""


@dataclass(frozen=True, slots=True)
class SweptValue:
    """A value of a swept key, with its label in ids and its path in the file."""

    value: Any
    label: str
    path: KeyPath = ()


Point = Mapping[str, SweptValue]
"""One value of each swept key, in file order."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The swept keys of an entry: a product, and parallel (zipped) lists."""

    matrix: Mapping[str, Sequence[SweptValue]] = field(default_factory=dict)
    zipped: Mapping[str, Sequence[SweptValue]] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """The swept keys, in the order in which an id shows them."""
        return [*self.matrix, *self.zipped]

    @property
    def size(self) -> int:
        """The number of points, including excluded ones."""
        rows = min(map(len, self.zipped.values()), default=1)
        return math.prod(map(len, self.matrix.values())) * rows

    def iterate_points(self) -> Iterator[Point]:
        """Yield the points; the first key changes slowest, the zipped keys fastest."""
        columns = self.zipped.values()
        rows = [dict(zip(self.zipped, row, strict=True)) for row in zip(*columns, strict=True)]
        for items in itertools.product(*self.matrix.values()):
            for row in rows or [{}]:
                yield {**dict(zip(self.matrix, items, strict=True)), **row}


@dataclass(frozen=True, slots=True)
class ParsedEntry:
    """A case entry with parsed parameters, not yet checked together.

    Attributes:
        path: Its path in the file.
        name: The name of its cases.
        benchmark: The benchmark.
        fixed: Parameters with one value.
        sweep: The swept keys.
        exclude: Points to leave out, as values of swept keys.
        np: The number of ranks in the entry.
        expect: The expectations.
        repeat: The number of repeats.
        launch: The launch settings.
        until: The conditions that end repeats.
        at_once: The limit of hosts on which a case runs at the same time.
        counts: The numbers of ranks of a scaling series.
        collapse: Whether points with the same id become one case.
    """

    path: KeyPath
    name: str
    benchmark: Benchmark
    fixed: Mapping[str, Any]
    sweep: Sweep
    exclude: Sequence[Mapping[str, Any]]
    np: int | None
    expect: tuple[Expectation, ...]
    repeat: int = 1
    launch: LaunchSettings = field(default_factory=LaunchSettings)
    until: RepeatPolicy | None = None
    at_once: int = 0
    counts: RankCounts | None = None
    collapse: bool = False


def format_label(value: Any) -> str:
    """Return the label of a swept value in an id: without spaces, a list as ``8+64``."""
    if isinstance(value, (list, tuple)):
        return "+".join(map(format_label, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "".join(str(value).split()).replace(",", "+")


def format_case_id(name: str, point: Point) -> str:
    """Return ``name``, or ``name[key=value,...]`` if keys are swept."""
    swept = ",".join(f"{key}={item.label}" for key, item in point.items())
    return f"{name}[{swept}]" if swept else name


@dataclass(unsafe_hash=True)  # not frozen, because Python sets attributes of exceptions
class _RanksError(Exception):
    """A number of ranks that the parameters do not allow.

    Equal errors of several points are reported once.

    Attributes:
        path: The path of the number in the file.
        ranks: The number.
        expected: A clause about the allowed numbers.
    """

    path: KeyPath
    ranks: int
    expected: str


def expand_entry(entry: ParsedEntry, findings: Findings) -> list[Case]:
    """Return the valid cases of an entry, and add errors of others to ``findings``."""
    if entry.sweep.size > MAX_CASES:
        reason = f"the sweep makes {entry.sweep.size} cases; one entry may make {MAX_CASES}"
        findings.add_at_value(entry.path, f"{entry.name}: {reason}")
        return []
    points = _complete_points(entry, findings)
    if len(points) > MAX_CASES:
        reason = f"its parameters make {len(points)} cases; one entry may make {MAX_CASES}"
        findings.add_at_value(entry.path, f"{entry.name}: {reason}")
        return []

    line = findings.find_line(entry.path)
    points_by_error: dict[_RanksError, list[Point]] = {}
    cases: dict[str, Case] = {}
    for point, params in points:
        try:
            case = _make_case(entry, point, params, line)
        except _RanksError as error:
            points_by_error.setdefault(error, []).append(point)
        else:
            cases.setdefault(case.id, case)
    for problem, affected in points_by_error.items():
        affects_all = len(affected) == len(points)
        _report_ranks(entry, problem, [] if affects_all else affected, findings)
    return list(cases.values())


def _complete_points(entry: ParsedEntry, findings: Findings) -> list[tuple[Point, dict[str, Any]]]:
    """Return all points with complete parameters; a benchmark may add its own points.

    Duplicate ids and contradictions are added to ``findings``.
    """
    errors: dict[tuple[str, str | None], list[str]] = {}
    ids: set[str] = set()
    points: list[tuple[Point, dict[str, Any]]] = []
    for point in _list_points(entry, findings):
        case_id = format_case_id(entry.name, point)
        if case_id in ids and not entry.collapse:
            findings.add_at_key((*entry.path, "zip"), f"zip makes {case_id} twice")
            continue
        ids.add(case_id)
        try:
            points += list(_complete_point(entry, point))
        except ExceptionGroup as group:
            for error in group.exceptions:
                param = getattr(error, "param", None)
                errors.setdefault((str(error), param), []).append(case_id)
    for (message, param), affected in errors.items():
        _report_param(entry, affected, message, param, findings)
    return points


def _complete_point(entry: ParsedEntry, point: Point) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Yield the cases of a point, each as an extended point and parameters.

    Raises:
        ExceptionGroup: of ParamError, if parameters are invalid or cannot be scaled.
    """
    values = {**entry.fixed, **{key: item.value for key, item in point.items() if key != "np"}}
    if entry.counts is None:
        for swept, params in entry.benchmark.list_cases(values):
            yield _extend_point(point, swept), params
        return
    for scaled in scale_cases(entry.benchmark, values, entry.np, entry.counts):
        np = SweptValue(scaled.ranks, str(scaled.ranks), (*entry.path, "scale", "np"))
        yield {**_extend_point(point, scaled.swept), "np": np}, scaled.params


def _extend_point(point: Point, swept: Mapping[str, Any]) -> Point:
    """Return a point with the values that the benchmark itself sweeps."""
    return {
        **point,
        **{key: SweptValue(value, format_label(value)) for key, value in swept.items()},
    }


def _report_param(
    entry: ParsedEntry, case_ids: list[str], message: str, param: str | None, findings: Findings
) -> None:
    """Add an error at its parameter, or at the entry if it is not in the file."""
    cases = f"{case_ids[0]}{_count_more(case_ids)}"
    sections = ("params", "matrix", "zip") if param else ()
    paths = ((*entry.path, section, str(param)) for section in sections)
    path = next(filter(findings.has_value, paths), entry.path)
    findings.add_at_value(path, f"{cases}: {message}{_list_options(entry, findings)}")


def _report_ranks(
    entry: ParsedEntry, error: _RanksError, affected: list[Point], findings: Findings
) -> None:
    """Add an error about ranks; ``affected`` is empty if all points have it."""
    params = "these parameters"
    if affected and (swept := _format_without_np(affected[0])):
        params = f"{swept}{_count_more(affected)}"
    options = "" if findings.find_option(error.path) else _list_options(entry, findings)
    name = entry.benchmark.name
    message = f"np is {error.ranks}, but {name} with {params} {error.expected}{options}"
    findings.add_at_value(error.path, message)


def _format_without_np(point: Point) -> str:
    return ",".join(f"{key}={item.label}" for key, item in point.items() if key != "np")


def _count_more(items: Sequence[object]) -> str:
    return f" and {len(items) - 1} more" if len(items) > 1 else ""


def _list_options(entry: ParsedEntry, findings: Findings) -> str:
    options = findings.list_options(entry.path)
    return f" (with {' '.join(options)})" if options else ""


def _list_points(entry: ParsedEntry, findings: Findings) -> list[Point]:
    """Return the points that are not excluded; each exclude must match a point."""
    used = [False] * len(entry.exclude)
    points = []
    for point in entry.sweep.iterate_points():
        matches = [
            all(point[key].value == value for key, value in rule.items()) for rule in entry.exclude
        ]
        used = [before or match for before, match in zip(used, matches, strict=True)]
        if not any(matches):
            points.append(point)
    for index, is_used in enumerate(used):
        if not is_used:
            findings.add_at_value((*entry.path, "exclude", index), "this exclude matches no case")
    if not points:
        findings.add_at_key((*entry.path, "exclude"), f"exclude leaves no case of {entry.name}")
    return points


def _make_case(entry: ParsedEntry, point: Point, params: dict[str, Any], line: int) -> Case:
    """Return the case at one point.

    Raises:
        _RanksError: Its number of ranks does not fit its parameters.
    """
    return Case(
        id=format_case_id(entry.name, point),
        name=entry.name,
        benchmark=entry.benchmark.name,
        params=params,
        np=_resolve_ranks(entry, point, params),
        repeat=entry.repeat,
        expect=entry.expect,
        launch=entry.launch,
        line=line,
        until=entry.until,
        at_once=entry.at_once,
        scaled=_find_series(entry, point),
    )


def _find_series(entry: ParsedEntry, point: Point) -> ScalingSeries | None:
    if entry.counts is None:
        return None
    others = {key: item for key, item in point.items() if key != "np"}
    case_id = format_case_id(entry.name, others)
    return ScalingSeries(case_id, entry.counts.work, entry.benchmark.throughput)


def _resolve_ranks(entry: ParsedEntry, point: Point, params: dict[str, Any]) -> int | None:
    """Return the number of ranks at a point; None: all slots.

    Raises:
        _RanksError: The number does not fit the parameters.
    """
    supported = entry.benchmark.ranks(params)
    ranks = point["np"].value if "np" in point else entry.np
    path = point["np"].path if "np" in point else (*entry.path, "np")
    for count in (ranks, supported.exact):
        if count is not None and count > MAX_RANKS:
            raise _RanksError(path, count, f"runs on at most {MAX_RANKS} ranks")
    if ranks is None:
        return supported.exact
    if supported.exact not in (None, ranks):
        expected = f"runs on {format_quantity(supported.exact, 'rank')}"
        raise _RanksError(path, ranks, expected)
    if ranks < supported.minimum:
        expected = f"needs at least {supported.minimum}"
        raise _RanksError(path, ranks, expected)
    return int(ranks)
