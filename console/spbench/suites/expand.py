"""Expansion of a case entry to its cases: product, parallel lists, exclusions, ids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spbench.suites.case import Case, Expectation, RepeatPolicy, ScalingSeries
from spbench.suites.findings import Findings
from spbench.suites.scaling import RankCounts, scale_cases
from spbench.suites.settings import LaunchSettings
from spbench.suites.yaml_nodes import KeyPath
from spbench_core.catalog.benchmark import Benchmark
from spbench_core.number_text import format_quantity

MAX_CASES = 10_000
"""The most cases that one entry may expand into."""
MAX_RANKS = 1_000_000
"""Ranks of the largest case: more are a slip of the pen."""


@dataclass(frozen=True, slots=True)
class SweptValue:
    """One value of a swept key: as read, as its case's id shows it, and where it stands."""

    value: Any
    label: str
    path: KeyPath = ()


Point = Mapping[str, SweptValue]
"""One item of each swept key, in file order."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The swept keys of an entry: ``matrix`` is a product, ``zipped`` are lists in step."""

    matrix: Mapping[str, Sequence[SweptValue]] = field(default_factory=dict)
    zipped: Mapping[str, Sequence[SweptValue]] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """The swept keys, in the order in which an id shows them."""
        return [*self.matrix, *self.zipped]

    @property
    def size(self) -> int:
        """Number of points before any is excluded."""
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
    """A case entry whose parameters were read one by one; not yet checked together.

    ``path`` is its place in the file, ``np`` its own number of ranks, ``exclude`` the read values
    of swept keys to leave out. ``collapse`` lets points of equal id become one case.
    """

    path: KeyPath
    name: str
    benchmark: Benchmark
    fixed: Mapping[str, Any]
    sweep: Sweep
    exclude: Sequence[Mapping[str, Any]]
    np: int | None
    repeat: int
    expect: tuple[Expectation, ...]
    launch: LaunchSettings
    until: RepeatPolicy | None = None
    at_once: int = 0
    counts: RankCounts | None = None
    collapse: bool = False


def format_label(value: Any) -> str:
    """Return a swept value as an id shows it: without spaces, a list as ``8+64``."""
    if isinstance(value, (list, tuple)):
        return "+".join(map(format_label, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "".join(str(value).split()).replace(",", "+")


def format_case_id(name: str, point: Point) -> str:
    """Return ``name``, or ``name[key=value,...]`` where keys differ from case to case."""
    swept = ",".join(f"{key}={item.label}" for key, item in point.items())
    return f"{name}[{swept}]" if swept else name


class _Misfit(Exception):  # noqa: N818 - it never leaves this module
    """A number of ranks that the parameters at one point of the sweep do not allow."""

    def __init__(self, path: KeyPath, given: int, runs_on: str) -> None:
        super().__init__(path, given, runs_on)
        self.told = path, given, runs_on


def expand_entry(entry: ParsedEntry, findings: Findings) -> list[Case]:
    """Return the cases of an entry, telling ``findings`` of those that cannot be."""
    if entry.sweep.size > MAX_CASES:
        makes = f"the sweep makes {entry.sweep.size} cases; one entry may make {MAX_CASES}"
        findings.add_at_value(entry.path, f"{entry.name}: {makes}")
        return []
    complete = _completed(entry, findings)
    line = findings.find_line(entry.path)
    if len(complete) > MAX_CASES:
        makes = f"its parameters make {len(complete)} cases; one entry may make {MAX_CASES}"
        findings.add_at_value(entry.path, f"{entry.name}: {makes}")
        return []
    misfits: dict[tuple[KeyPath, int, str], list[Point]] = {}
    cases: dict[str, Case] = {}
    for point, params in complete:
        try:
            case = _case(entry, point, params, line)
        except _Misfit as misfit:
            misfits.setdefault(misfit.told, []).append(point)
        else:
            cases.setdefault(case.id, case)
    for told, which in misfits.items():
        _tell_misfit(entry, *told, which if len(which) < len(complete) else [], findings)
    return list(cases.values())


def _completed(entry: ParsedEntry, findings: Findings) -> list[tuple[Point, dict[str, Any]]]:
    """Return all points with their parameters; a benchmark may make several of one of the sweep.

    Told of are points whose id was there before, and contradictions.
    """
    refused: dict[tuple[str, str | None], list[str]] = {}
    seen: set[str] = set()
    complete: list[tuple[Point, dict[str, Any]]] = []
    for point in _kept(entry, findings):
        identity = format_case_id(entry.name, point)
        if identity in seen and not entry.collapse:
            findings.add_at_key((*entry.path, "zip"), f"zip makes {identity} twice")
            continue
        seen.add(identity)
        try:
            complete += list(_cases(entry, point))
        except ExceptionGroup as group:
            for error in group.exceptions:
                param = getattr(error, "param", None)
                refused.setdefault((str(error), param), []).append(identity)
    for (message, param), identities in refused.items():
        _tell_refused(entry, identities, message, param, findings)
    return complete


def _cases(entry: ParsedEntry, point: Point) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Yield the cases of one point of the sweep, each with what differs and its parameters.

    Raises:
        ExceptionGroup: of ParamError, where parameters are wrong or do not go over to other ranks.
    """
    given = {**entry.fixed, **{key: item.value for key, item in point.items() if key != "np"}}
    if entry.counts is None:
        for differs, params in entry.benchmark.list_cases(given):
            yield _with_own(point, differs), params
        return
    for count, differs, params in scale_cases(entry.benchmark, given, entry.np, entry.counts):
        np = SweptValue(count, str(count), (*entry.path, "scale", "np"))
        yield {**_with_own(point, differs), "np": np}, params


def _with_own(point: Point, differs: Mapping[str, Any]) -> Point:
    """Return a point of the sweep with what the benchmark itself lets differ."""
    return {
        **point,
        **{key: SweptValue(value, format_label(value)) for key, value in differs.items()},
    }


def _tell_refused(
    entry: ParsedEntry, identities: list[str], message: str, param: str | None, findings: Findings
) -> None:
    """Tell of a contradiction where its parameter stands; it may be derived and stand nowhere."""
    which = f"{identities[0]}{_more(identities)}"
    sections = ("params", "matrix", "zip") if param else ()
    places = ((*entry.path, section, str(param)) for section in sections)
    path = next(filter(findings.has_value, places), entry.path)
    findings.add_at_value(path, f"{which}: {message}{_options(entry, findings)}")


def _tell_misfit(
    entry: ParsedEntry,
    path: KeyPath,
    given: int,
    runs_on: str,
    which: list[Point],
    findings: Findings,
) -> None:
    """Tell of a wrong number of ranks; ``which`` is empty where all points have it."""
    these = "these parameters"
    if which and (swept := _without_np(which[0])):
        these = f"{swept}{_more(which)}"
    option = "" if findings.find_option(path) else _options(entry, findings)
    name = entry.benchmark.name
    findings.add_at_value(path, f"np is {given}, but {name} with {these} {runs_on}{option}")


def _without_np(point: Point) -> str:
    return ",".join(f"{key}={item.label}" for key, item in point.items() if key != "np")


def _more(things: Sequence[object]) -> str:
    return f" and {len(things) - 1} more" if len(things) > 1 else ""


def _options(entry: ParsedEntry, findings: Findings) -> str:
    options = findings.list_options(entry.path)
    return f" (with {' '.join(options)})" if options else ""


def _kept(entry: ParsedEntry, findings: Findings) -> list[Point]:
    """Return the points that no exclude leaves out; each exclude must leave out some."""
    points = list(entry.sweep.iterate_points())
    matched = [False] * len(entry.exclude)
    kept = []
    for point in points:
        hits = [all(point[k].value == v for k, v in rule.items()) for rule in entry.exclude]
        matched = [before or hit for before, hit in zip(matched, hits, strict=True)]
        if not any(hits):
            kept.append(point)
    for index, used in enumerate(matched):
        if not used:
            findings.add_at_value((*entry.path, "exclude", index), "this exclude matches no case")
    if not kept:
        findings.add_at_key((*entry.path, "exclude"), f"exclude leaves no case of {entry.name}")
    return kept


def _case(entry: ParsedEntry, point: Point, params: dict[str, Any], line: int) -> Case:
    """Return the case at one point.

    Raises:
        _Misfit: Its number of ranks does not fit its parameters.
    """
    return Case(
        id=format_case_id(entry.name, point),
        name=entry.name,
        benchmark=entry.benchmark.name,
        params=params,
        np=_ranks(entry, point, params),
        repeat=entry.repeat,
        expect=entry.expect,
        launch=entry.launch,
        line=line,
        until=entry.until,
        at_once=entry.at_once,
        scaled=_scaled(entry, point),
    )


def _scaled(entry: ParsedEntry, point: Point) -> ScalingSeries | None:
    if entry.counts is None:
        return None
    of = format_case_id(entry.name, {key: item for key, item in point.items() if key != "np"})
    return ScalingSeries(of, entry.counts.work, entry.benchmark.throughput)


def _ranks(entry: ParsedEntry, point: Point, params: dict[str, Any]) -> int | None:
    """Return the number of ranks at a point; a given one must fit the parameters."""
    needed = entry.benchmark.ranks(params)
    given = point["np"].value if "np" in point else entry.np
    path = point["np"].path if "np" in point else (*entry.path, "np")
    for count in (given, needed.exact):
        if count is not None and count > MAX_RANKS:
            raise _Misfit(path, count, f"runs on at most {MAX_RANKS} ranks")
    if given is None:
        return needed.exact
    if needed.exact not in (None, given):
        raise _Misfit(path, given, f"runs on {format_quantity(needed.exact, 'rank')}")
    if given < needed.minimum:
        raise _Misfit(path, given, f"needs at least {needed.minimum}")
    return int(given)
