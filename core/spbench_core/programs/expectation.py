"""The output that a program is expected to print: its metrics, its table, its marks of success."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

Better = Literal["lower", "higher", "none"]
VALUE = "value"
"""The group of a pattern that holds the number."""
SKIPPED = "_"
"""The name of a column that is not read."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_LONGEST_PATTERN = 1000
_FIGURE_KEYS = ("unit", "better", "scale")
_TABLE_KEYS = (
    "header",
    "rows",
    "columns",
    "labels",
    "metrics",
    "must",
    "fixed",
    "context",
    "optional",
)


class ExpectationError(ValueError):
    """The error of an expectation that cannot be read: its parameter, and what is wrong with it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


@dataclass(frozen=True, slots=True)
class OutputMetric:
    """A number that a program prints: a metric of the case.

    Attributes:
        name: The metric's name.
        unit: Its unit, as a report shows it.
        better: Its direction.
        scale: The factor from the program's unit to this one.
        optional: Whether the program may print it or not.
    """

    name: str
    unit: str
    better: Better
    scale: float = 1.0
    optional: bool = False


@dataclass(frozen=True, slots=True)
class LineMetric:
    """A number in a line: the group ``value`` of a pattern that is searched in each line.

    Of several such lines the last one counts; a sample of each is kept where ``sampled``.
    """

    metric: OutputMetric
    pattern: re.Pattern[str]
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class JsonMetric:
    """A number in output that is one JSON document, by its path.

    Attributes:
        figure: The metric.
        path: Keys and indices from the root on.
    """

    metric: OutputMetric
    path: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class OutputTable:
    """A table of a program's output: a header line, then rows of as many words as columns.

    Without `rows` it ends at the first line that is neither blank nor a row; with it, at another
    table's header, and other lines, as launchers print them in between, are passed over. Each row
    is a point of a sweep: its labels say which, and its figures are values there.

    Attributes:
        header: Searched in each line; the table begins after the one that holds it.
        columns: The columns' names from left to right; ``_`` is not read.
        labels: Of these, the ones that say which point a row is.
        figures: Of these, the ones that are metrics.
        must: Of these, the words of which each row must have one there.
        fixed: Labels that all rows of this table have.
        rows: Searched in each line: only rows match. One that cannot be read is an error.
        context: Searched in each line: the named groups of the newest match are labels, too.
        optional: Whether the program may print it or not; once its header has come, its metrics
            must have values.
    """

    header: re.Pattern[str]
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    metrics: Mapping[str, OutputMetric]
    must: Mapping[str, tuple[str, ...]]
    fixed: Mapping[str, str]
    rows: re.Pattern[str] | None = None
    context: tuple[re.Pattern[str], ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class OutputExpectation:
    """The output that a program is expected to print.

    Attributes:
        lines: Numbers in lines.
        tables: Tables of points.
        json: Numbers in a JSON document.
        must: Patterns of which each must stand in some line.
        never: Patterns that must stand in none.
    """

    lines: tuple[LineMetric, ...] = ()
    tables: tuple[OutputTable, ...] = ()
    json: tuple[JsonMetric, ...] = ()
    must: tuple[re.Pattern[str], ...] = ()
    never: tuple[re.Pattern[str], ...] = ()

    @property
    def required(self) -> frozenset[str]:
        """The names of the metrics that the program must print whatever else it prints."""
        lines = (line.metric for line in self.lines)
        documents = (one.metric for one in self.json)
        names = {figure.name for figure in (*lines, *documents) if not figure.optional}
        names.update(
            figure.name
            for table in self.tables
            if not table.optional
            for figure in table.metrics.values()
        )
        return frozenset(names)

    @property
    def metrics(self) -> dict[str, OutputMetric]:
        """All metrics, by name, in the order in which they were asked for."""
        found = [*(line.metric for line in self.lines)]
        found += [figure for table in self.tables for figure in table.metrics.values()]
        found += [one.metric for one in self.json]
        return {figure.name: figure for figure in found}


def parse_expectation(params: Mapping[str, Any]) -> OutputExpectation:
    """Return what the parameters of a case expect.

    Args:
        params: ``metrics`` and ``samples`` map a name to ``{pattern, unit, better, scale,
            optional}``, ``json`` to ``{path, unit, better, scale, optional}``; ``table`` is one
            table or a list of them; ``must`` and ``never`` are lists of patterns. What is None or
            missing is not expected.

    Raises:
        ExpectationError: Something of it is wrong.
    """
    expectation = OutputExpectation(
        lines=(*_lines(params, "metrics"), *_lines(params, "samples")),
        tables=tuple(_tables(params.get("table"))),
        json=tuple(_json(params.get("json"))),
        must=_patterns(params, "must"),
        never=_patterns(params, "never"),
    )
    _refuse_twice(expectation)
    return expectation


def _lines(params: Mapping[str, Any], param: str) -> list[LineMetric]:
    found = []
    for name, about in _mapping(params.get(param), param).items():
        place = f"{param}.{name}"
        about = _only(about, place, ("pattern", *_FIGURE_KEYS, "optional"))
        pattern = _pattern(about.get("pattern"), place)
        if VALUE not in pattern.groupindex:
            raise ExpectationError(
                place,
                f"its pattern has no group {VALUE}: write (?P<{VALUE}>...) where the number is",
            )
        found.append(LineMetric(_figure(name, about, place), pattern, param == "samples"))
    return found


def _json(value: Any) -> list[JsonMetric]:
    found = []
    for name, about in _mapping(value, "json").items():
        place = f"json.{name}"
        about = _only(about, place, ("path", *_FIGURE_KEYS, "optional"))
        found.append(JsonMetric(_figure(name, about, place), _path(about.get("path"), place)))
    return found


def _path(value: Any, place: str) -> tuple[str | int, ...]:
    """Return the steps of ``a.0.b``, or of a list, in which a key may have dots."""
    if isinstance(value, list):
        steps = [str(step) for step in value]
    else:
        steps = value.split(".") if isinstance(value, str) else []
    if not any(steps):
        raise ExpectationError(
            place, "its path is missing: write keys and indices, a.0.b, or a list of them"
        )
    return tuple(int(step) if step.isdigit() else step for step in steps)


def _tables(value: Any) -> list[OutputTable]:
    if value is None:
        return []
    tables = value if isinstance(value, list) else [value]
    many = len(tables) > 1
    return [
        _table(table, f"table[{index}]" if many else "table") for index, table in enumerate(tables)
    ]


def _table(value: Any, place: str) -> OutputTable:
    about = _only(value, place, _TABLE_KEYS)
    columns = _words(about.get("columns"), f"{place}.columns")
    named = [name for name in columns if name != SKIPPED]
    labels = _words(about.get("labels", []), f"{place}.labels")
    must = {
        name: tuple(str(word) for word in (words if isinstance(words, list) else [words]))
        for name, words in _mapping(about.get("must"), f"{place}.must").items()
    }
    given = _mapping(about.get("metrics"), f"{place}.metrics")
    for name in (*labels, *given, *must):
        if name not in named:
            raise ExpectationError(place, f"{name} is none of its columns, {', '.join(named)}")
    if len(set(named)) < len(named):
        raise ExpectationError(place, "a column is named twice")
    if not given:
        raise ExpectationError(place, "none of its columns is a metric: give metrics")
    context = _patterns(about, "context", f"{place}.context")
    if not all(pattern.groupindex for pattern in context):
        raise ExpectationError(
            f"{place}.context", "a pattern has no named group: write (?P<NAME>...) for each label"
        )
    rows = about.get("rows")
    return OutputTable(
        header=_pattern(about.get("header"), f"{place}.header"),
        columns=tuple(columns),
        labels=tuple(labels),
        metrics={
            name: _table_figure(name, one, f"{place}.metrics.{name}") for name, one in given.items()
        },
        must=must,
        fixed=_texts(about.get("fixed"), f"{place}.fixed"),
        rows=None if rows is None else _pattern(rows, f"{place}.rows"),
        context=context,
        optional=_optional(about, place),
    )


def _table_figure(name: str, value: Any, place: str) -> OutputMetric:
    return _figure(name, _only(value, place, _FIGURE_KEYS), place)


def _figure(name: Any, about: Mapping[str, Any], place: str) -> OutputMetric:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ExpectationError(place, "a metric's name has letters, digits and _ alone")
    better = about.get("better", "none")
    if better not in get_args(Better):
        raise ExpectationError(place, f"better is lower, higher or none, not {better!r}")
    scale = about.get("scale", 1.0)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0 < scale < 1e18:
        raise ExpectationError(place, f"scale is a number above 0, not {scale!r}")
    unit = about.get("unit", "")
    if not isinstance(unit, str):
        raise ExpectationError(place, f"unit is text, not {unit!r}")
    return OutputMetric(name, unit, better, float(scale), _optional(about, place))


def _optional(about: Mapping[str, Any], place: str) -> bool:
    optional = about.get("optional", False)
    if not isinstance(optional, bool):
        raise ExpectationError(place, f"optional is true or false, not {optional!r}")
    return optional


def _patterns(
    params: Mapping[str, Any], param: str, place: str | None = None
) -> tuple[re.Pattern[str], ...]:
    given = params.get(param)
    found = given if isinstance(given, list) else [] if given is None else [given]
    return tuple(_pattern(one, place or param) for one in found)


def _pattern(value: Any, place: str) -> re.Pattern[str]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise ExpectationError(place, "its pattern is missing")
    if len(value) > _LONGEST_PATTERN:
        raise ExpectationError(place, f"its pattern is longer than {_LONGEST_PATTERN} characters")
    try:
        return re.compile(value)
    except re.error as error:
        raise ExpectationError(place, f"{value!r} is no regular expression: {error}") from None


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ExpectationError(place, "it is a mapping from names")
    return value


def _only(value: Any, place: str, keys: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ExpectationError(place, f"it is a mapping with {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise ExpectationError(place, f"{key!r} is none of {', '.join(keys)}")
    return value


def _words(value: Any, place: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ExpectationError(place, "it is a list of names")
    return value


def _texts(value: Any, place: str) -> dict[str, str]:
    return {str(name): str(text) for name, text in _mapping(value, place).items()}


def _refuse_twice(expectation: OutputExpectation) -> None:
    """Refuse a metric that lines and tables both give; tables may share theirs."""
    seen: set[str] = set()
    tables = {name for table in expectation.tables for name in table.metrics}
    for name in (
        *(line.metric.name for line in expectation.lines),
        *sorted(tables),
        *(one.metric.name for one in expectation.json),
    ):
        if name in seen:
            raise ExpectationError("metrics", f"{name} is asked for twice")
        seen.add(name)
