"""Expansion of a case entry to its cases: sweeps, exclusions and ids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spbench.suites.case import Case, Expectation, RepeatPolicy, ScalingSeries
from spbench.suites.file_errors import FileErrors
from spbench.suites.settings import LaunchSettings
from spbench.suites.yaml_nodes import KeyPath
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.catalog.scaling import RankScaling, scale_cases
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
        zipped_rows = min(map(len, self.zipped.values()), default=1)
        return math.prod(map(len, self.matrix.values())) * zipped_rows

    @property
    def first_values(self) -> dict[str, Any]:
        """The swept parameters with their values at the first point."""
        first_point = next(self.iterate_points(), {})
        return {key: swept.value for key, swept in first_point.items() if key != "np"}

    def iterate_points(self) -> Iterator[Point]:
        """Yield the points; the first key changes slowest, the zipped keys fastest."""
        zipped_lists = self.zipped.values()
        zipped_points = [
            dict(zip(self.zipped, zipped_point, strict=True))
            for zipped_point in zip(*zipped_lists, strict=True)
        ]
        for matrix_values in itertools.product(*self.matrix.values()):
            for zipped_point in zipped_points or [{}]:
                yield {**dict(zip(self.matrix, matrix_values, strict=True)), **zipped_point}


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
    counts: RankScaling | None = None
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
    swept_text = ",".join(f"{key}={swept_value.label}" for key, swept_value in point.items())
    return f"{name}[{swept_text}]" if swept_text else name


@dataclass(unsafe_hash=True)  # not frozen, because Python sets attributes of exceptions
class _RanksError(Exception):
    """A number of ranks that the parameters do not allow.

    Equal errors of several points are reported once.

    Attributes:
        path: The path of the number in the file.
        ranks: The number.
        expected: A clause about the allowed numbers.
        remedy: A clause about the changes that help the first point; may be empty.
    """

    path: KeyPath
    ranks: int
    expected: str
    remedy: str = field(default="", compare=False)


def expand_entry(entry: ParsedEntry, errors: FileErrors) -> list[Case]:
    """Return the valid cases of an entry, and add the errors of the others."""
    if entry.sweep.size > MAX_CASES:
        reason = f"the sweep makes {entry.sweep.size} cases; one entry may make {MAX_CASES}"
        errors.add_at_value(entry.path, f"{entry.name}: {reason}")
        return []
    points = _complete_points(entry, errors)
    if len(points) > MAX_CASES:
        reason = f"its parameters make {len(points)} cases; one entry may make {MAX_CASES}"
        errors.add_at_value(entry.path, f"{entry.name}: {reason}")
        return []

    line = errors.find_line(entry.path)
    points_by_error: dict[_RanksError, list[Point]] = {}
    cases_by_id: dict[str, Case] = {}
    for point, params in points:
        try:
            case = _make_case(entry, point, params, line)
        except _RanksError as error:
            points_by_error.setdefault(error, []).append(point)
        else:
            cases_by_id.setdefault(case.id, case)
    for ranks_error, affected_points in points_by_error.items():
        affects_all = len(affected_points) == len(points)
        _report_ranks_error(entry, ranks_error, [] if affects_all else affected_points, errors)
    return list(cases_by_id.values())


def _complete_points(entry: ParsedEntry, errors: FileErrors) -> list[tuple[Point, dict[str, Any]]]:
    """Return all points with complete parameters; a benchmark may add its own points.

    Duplicate ids and contradictions are added to ``errors``.
    """
    case_ids_by_error: dict[tuple[str, str | None], list[str]] = {}
    seen_ids: set[str] = set()
    points: list[tuple[Point, dict[str, Any]]] = []
    for point in _list_points(entry, errors):
        case_id = format_case_id(entry.name, point)
        if case_id in seen_ids and not entry.collapse:
            errors.add_at_key((*entry.path, "zip"), f"zip makes {case_id} twice")
            continue
        seen_ids.add(case_id)
        try:
            points += list(_complete_point(entry, point))
        except ExceptionGroup as group:
            for error in group.exceptions:
                param = getattr(error, "param", None)
                case_ids_by_error.setdefault((str(error), param), []).append(case_id)
    for (message, param), affected_ids in case_ids_by_error.items():
        _report_param_error(entry, affected_ids, message, param, errors)
    return points


def _complete_point(entry: ParsedEntry, point: Point) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Yield the cases of a point, each as an extended point and parameters.

    Raises:
        ExceptionGroup: of ParamError, if parameters are invalid or cannot be scaled.
    """
    values = {
        **entry.fixed,
        **{key: swept_value.value for key, swept_value in point.items() if key != "np"},
    }
    if entry.counts is None:
        for swept, params in entry.benchmark.list_cases(values):
            yield _extend_point(point, swept), params
        return
    for scaled in scale_cases(entry.benchmark, values, entry.np, entry.counts):
        swept_np = SweptValue(
            scaled.rank_count, str(scaled.rank_count), (*entry.path, "scale", "np")
        )
        yield {**_extend_point(point, scaled.swept), "np": swept_np}, scaled.params


def _extend_point(point: Point, swept: Mapping[str, Any]) -> Point:
    """Return a point with the values that the benchmark itself sweeps."""
    return {
        **point,
        **{key: SweptValue(value, format_label(value)) for key, value in swept.items()},
    }


def _report_param_error(
    entry: ParsedEntry, case_ids: list[str], message: str, param: str | None, errors: FileErrors
) -> None:
    """Add an error at its parameter, or at the entry if it is not in the file."""
    cases_text = f"{case_ids[0]}{_count_more(case_ids)}"
    sections = ("params", "matrix", "zip") if param else ()
    candidate_paths = [(*entry.path, section, str(param)) for section in sections]
    candidate_paths += [(*entry.path, "scale")] if param == "scale" else []
    path = next(filter(errors.has_value, candidate_paths), entry.path)
    if errors.find_default(path) is None:  # otherwise the message of a default names a case
        message = f"{cases_text}: {message}"
    cause = (*entry.path, "params", param) if param and param != "scale" else None
    errors.add_at_value(path, f"{message}{_format_options(entry, errors)}", cause)


def _report_ranks_error(
    entry: ParsedEntry, error: _RanksError, affected: list[Point], errors: FileErrors
) -> None:
    """Add an error about ranks; ``affected`` is empty if all points have it."""
    params_text = ""
    if affected and (swept_text := _format_without_np(affected[0])):
        params_text = f" with {swept_text}{_count_more(affected)}"
    message = f"np is {error.ranks}, but {entry.benchmark.name}{params_text} {error.expected}"
    if not errors.find_option(error.path):  # which the user would change instead
        message += f"{_format_options(entry, errors)}{error.remedy}"
    errors.add_at_value(error.path, message)


def _format_without_np(point: Point) -> str:
    return ",".join(
        f"{key}={swept_value.label}" for key, swept_value in point.items() if key != "np"
    )


def _count_more(items: Sequence[object]) -> str:
    return f" and {len(items) - 1} more" if len(items) > 1 else ""


def _format_options(entry: ParsedEntry, errors: FileErrors) -> str:
    options = errors.list_options(entry.path)
    return f" (with {' '.join(options)})" if options else ""


def _list_points(entry: ParsedEntry, errors: FileErrors) -> list[Point]:
    """Return the points that are not excluded; each exclude must match a point."""
    is_rule_used = [False] * len(entry.exclude)
    points = []
    for point in entry.sweep.iterate_points():
        is_point_excluded = False
        for index, rule in enumerate(entry.exclude):
            if all(point[key].value == value for key, value in rule.items()):
                is_rule_used[index] = True
                is_point_excluded = True
        if not is_point_excluded:
            points.append(point)
    for index, is_used in enumerate(is_rule_used):
        if not is_used:
            errors.add_at_value((*entry.path, "exclude", index), "this exclude matches no case")
    if not points:
        errors.add_at_key((*entry.path, "exclude"), f"exclude leaves no case of {entry.name}")
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
        scaling_series=_find_series(entry, point),
    )


def _find_series(entry: ParsedEntry, point: Point) -> ScalingSeries | None:
    if entry.counts is None:
        return None
    without_np = {key: swept_value for key, swept_value in point.items() if key != "np"}
    case_id = format_case_id(entry.name, without_np)
    return ScalingSeries(case_id, entry.counts.mode, entry.benchmark.throughput)


def _resolve_ranks(entry: ParsedEntry, point: Point, params: dict[str, Any]) -> int | None:
    """Return the number of ranks at a point; None: all slots.

    Raises:
        _RanksError: The number does not fit the parameters.
    """
    supported_ranks = entry.benchmark.ranks(params)
    ranks = point["np"].value if "np" in point else entry.np
    path = point["np"].path if "np" in point else (*entry.path, "np")
    for count in (ranks, supported_ranks.exact):
        if count is not None and count > MAX_RANKS:
            raise _RanksError(path, count, f"runs on at most {MAX_RANKS} ranks")
    if ranks is None:
        return supported_ranks.exact
    if supported_ranks.exact not in (None, ranks):
        expected = f"runs on {format_quantity(supported_ranks.exact, 'rank')}"
        remedy = _format_remedy(supported_ranks.exact, supported_ranks.params, params)
        raise _RanksError(path, ranks, expected, remedy)
    if ranks < supported_ranks.minimum:
        expected = f"needs at least {format_quantity(supported_ranks.minimum, 'rank')}"
        raise _RanksError(path, ranks, expected)
    return int(ranks)


def _format_remedy(exact: int, names: Sequence[str], params: Mapping[str, Any]) -> str:
    """Return how to change np or the parameters that determine it, with their values."""
    values = {name: params[name] for name in names if params.get(name) is not None}
    texts = [f"{name} ({format_label(value)})" for name, value in values.items()]
    changes = " or ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
    return f": set np to {exact}{', or change ' if changes else ''}{changes}"
