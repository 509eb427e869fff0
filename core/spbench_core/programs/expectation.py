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


class ExpectationError(ValueError):
    """The error of an expectation that cannot be read: its parameter, and what is wrong with it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a program prints: a metric of the case.

    Attributes:
        name: The metric's name.
        unit: Its unit, as a report shows it.
        better: Its direction.
        scale: The factor from the program's unit to this one.
    """

    name: str
    unit: str
    better: Better
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class LineFigure:
    """A number in a line: the group ``value`` of a pattern that is searched in each line.

    Of several such lines the last one counts; a sample of each is kept where ``sampled``.
    """

    figure: Figure
    pattern: re.Pattern[str]
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class JsonFigure:
    """A number in output that is one JSON document, by its path.

    Attributes:
        figure: The metric.
        path: Keys and indices from the root on.
    """

    figure: Figure
    path: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a program's output: a header line, then rows of as many words as columns.

    It ends at the first line that is neither blank nor a row. Each row is a point of a sweep: its
    labels say which, and its figures are values there.

    Attributes:
        header: Searched in each line; the table begins after the one that holds it.
        columns: The columns' names from left to right; ``_`` is not read.
        labels: Of these, the ones that say which point a row is.
        figures: Of these, the ones that are metrics.
        must: Of these, the word that each row must have there.
        fixed: Labels that all rows of this table have.
    """

    header: re.Pattern[str]
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    figures: Mapping[str, Figure]
    must: Mapping[str, str]
    fixed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Expectation:
    """The output that a program is expected to print.

    Attributes:
        lines: Numbers in lines.
        tables: Tables of points.
        json: Numbers in a JSON document.
        must: Patterns of which each must stand in some line.
        never: Patterns that must stand in none.
    """

    lines: tuple[LineFigure, ...] = ()
    tables: tuple[Table, ...] = ()
    json: tuple[JsonFigure, ...] = ()
    must: tuple[re.Pattern[str], ...] = ()
    never: tuple[re.Pattern[str], ...] = ()

    @property
    def figures(self) -> dict[str, Figure]:
        """All metrics, by name, in the order in which they were asked for."""
        found = [*(line.figure for line in self.lines)]
        found += [figure for table in self.tables for figure in table.figures.values()]
        found += [one.figure for one in self.json]
        return {figure.name: figure for figure in found}


def expectation_of(params: Mapping[str, Any]) -> Expectation:
    """Return what the parameters of a case expect.

    Args:
        params: ``metrics`` and ``samples`` map a name to ``{pattern, unit, better, scale}``,
            ``json`` to ``{path, unit, better, scale}``; ``table`` is one table or a list of them;
            ``must`` and ``never`` are lists of patterns. What is None or missing is not expected.

    Raises:
        ExpectationError: Something of it is wrong.
    """
    expectation = Expectation(
        lines=(*_lines(params, "metrics"), *_lines(params, "samples")),
        tables=tuple(_tables(params.get("table"))),
        json=tuple(_json(params.get("json"))),
        must=_patterns(params, "must"),
        never=_patterns(params, "never"),
    )
    _refuse_twice(expectation)
    return expectation


def _lines(params: Mapping[str, Any], param: str) -> list[LineFigure]:
    found = []
    for name, about in _mapping(params.get(param), param).items():
        place = f"{param}.{name}"
        about = _only(about, place, ("pattern", "unit", "better", "scale"))
        pattern = _pattern(about.get("pattern"), place)
        if VALUE not in pattern.groupindex:
            raise ExpectationError(
                place,
                f"its pattern has no group {VALUE}: write (?P<{VALUE}>...) where the number is",
            )
        found.append(LineFigure(_figure(name, about, place), pattern, param == "samples"))
    return found


def _json(value: Any) -> list[JsonFigure]:
    found = []
    for name, about in _mapping(value, "json").items():
        place = f"json.{name}"
        about = _only(about, place, ("path", "unit", "better", "scale"))
        path = about.get("path")
        if not isinstance(path, str) or not path:
            raise ExpectationError(place, "its path is missing: write keys and indices, a.0.b")
        steps = tuple(int(step) if step.isdigit() else step for step in path.split("."))
        found.append(JsonFigure(_figure(name, about, place), steps))
    return found


def _tables(value: Any) -> list[Table]:
    if value is None:
        return []
    tables = value if isinstance(value, list) else [value]
    many = len(tables) > 1
    return [
        _table(table, f"table[{index}]" if many else "table") for index, table in enumerate(tables)
    ]


def _table(value: Any, place: str) -> Table:
    about = _only(value, place, ("header", "columns", "labels", "metrics", "must", "fixed"))
    columns = _words(about.get("columns"), f"{place}.columns")
    named = [name for name in columns if name != SKIPPED]
    labels = _words(about.get("labels", []), f"{place}.labels")
    must = _texts(about.get("must"), f"{place}.must")
    given = _mapping(about.get("metrics"), f"{place}.metrics")
    for name in (*labels, *given, *must):
        if name not in named:
            raise ExpectationError(place, f"{name} is none of its columns, {', '.join(named)}")
    if len(set(named)) < len(named):
        raise ExpectationError(place, "a column is named twice")
    if not given:
        raise ExpectationError(place, "none of its columns is a metric: give metrics")
    return Table(
        header=_pattern(about.get("header"), f"{place}.header"),
        columns=tuple(columns),
        labels=tuple(labels),
        figures={
            name: _table_figure(name, one, f"{place}.metrics.{name}") for name, one in given.items()
        },
        must=must,
        fixed=_texts(about.get("fixed"), f"{place}.fixed"),
    )


def _table_figure(name: str, value: Any, place: str) -> Figure:
    return _figure(name, _only(value, place, ("unit", "better", "scale")), place)


def _figure(name: Any, about: Mapping[str, Any], place: str) -> Figure:
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
    return Figure(name, unit, better, float(scale))


def _patterns(params: Mapping[str, Any], param: str) -> tuple[re.Pattern[str], ...]:
    given = params.get(param)
    found = given if isinstance(given, list) else [] if given is None else [given]
    return tuple(_pattern(one, param) for one in found)


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


def _refuse_twice(expectation: Expectation) -> None:
    """Refuse a metric that lines and tables both give; tables may share theirs."""
    seen: set[str] = set()
    tables = {name for table in expectation.tables for name in table.figures}
    for name in (
        *(line.figure.name for line in expectation.lines),
        *sorted(tables),
        *(one.figure.name for one in expectation.json),
    ):
        if name in seen:
            raise ExpectationError("metrics", f"{name} is asked for twice")
        seen.add(name)
