"""The expected output of a program: metrics, tables and patterns of success."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from spbench_core.events.run_events import Better

VALUE = "value"
"""The group of a pattern with the number."""
SKIPPED = "_"
"""The name of a column that is ignored."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MAX_PATTERN_LENGTH = 1000
_METRIC_KEYS = ("unit", "better", "scale")
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
    """An invalid expectation; ``param`` is the parameter that is wrong."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param


@dataclass(frozen=True, slots=True)
class OutputMetric:
    """A metric of the case: a number that a program prints.

    Attributes:
        name: The name of the metric.
        unit: Its unit in reports.
        better: The direction in which it improves.
        scale: The factor from the program's unit to `unit`.
        optional: Whether the output may lack it.
    """

    name: str
    unit: str
    better: Better
    scale: float = 1.0
    optional: bool = False


@dataclass(frozen=True, slots=True)
class LineMetric:
    """A number in a line.

    Attributes:
        metric: The metric.
        pattern: Searched in each line; its group ``value`` is the number. The last match counts.
        sampled: Whether the number of each match is a sample.
    """

    metric: OutputMetric
    pattern: re.Pattern[str]
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class JsonMetric:
    """A number in the JSON document that a program prints.

    Attributes:
        metric: The metric.
        path: Keys and indices, from the root.
    """

    metric: OutputMetric
    path: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class OutputTable:
    """A table in a program's output: a header, and rows of words.

    Without `rows` it ends at the first line that is neither blank nor a row. With `rows` it ends at
    the header of another table, and other lines in between, such as those of launchers, are
    ignored. Each row is a point of a sweep: its labels identify the point, and its metrics are the
    values.

    Attributes:
        header: Searched in each line; the table begins after a match.
        columns: The names of the columns, from left to right; ``_`` is ignored.
        labels: The columns that identify the point.
        metrics: The columns that are metrics.
        must: The allowed words of a column; each row must have one of them.
        fixed: Labels of all rows of this table.
        rows: Searched in each line; matches rows only. A row that cannot be read is an error.
        context: Searched in each line; the named groups of the last match are labels, too.
        optional: Whether the output may lack it. After its header its metrics must have values.
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
        must: Patterns that must each match a line.
        never: Patterns that must not match any line.
    """

    lines: tuple[LineMetric, ...] = ()
    tables: tuple[OutputTable, ...] = ()
    json: tuple[JsonMetric, ...] = ()
    must: tuple[re.Pattern[str], ...] = ()
    never: tuple[re.Pattern[str], ...] = ()

    @property
    def required(self) -> frozenset[str]:
        """The names of the metrics that the program must print in any case."""
        line_metrics = (line.metric for line in self.lines)
        json_metrics = (json_metric.metric for json_metric in self.json)
        required_names = {
            metric.name for metric in (*line_metrics, *json_metrics) if not metric.optional
        }
        required_names.update(
            metric.name
            for table in self.tables
            if not table.optional
            for metric in table.metrics.values()
        )
        return frozenset(required_names)

    @property
    def metrics(self) -> dict[str, OutputMetric]:
        """All metrics by name, in the order of the parameters."""
        metrics = [line.metric for line in self.lines]
        metrics += [metric for table in self.tables for metric in table.metrics.values()]
        metrics += [json_metric.metric for json_metric in self.json]
        return {metric.name: metric for metric in metrics}


def parse_expectation(params: Mapping[str, Any]) -> OutputExpectation:
    """Parse the expectation of a case's parameters.

    Args:
        params: ``metrics`` and ``samples`` map a name to ``{pattern, unit, better, scale,
            optional}``, and ``json`` maps it to ``{path, unit, better, scale, optional}``.
            ``table`` is a table or a list of them. ``must`` and ``never`` are lists of patterns.
            Each may be None or missing.

    Raises:
        ExpectationError: A parameter is invalid.
    """
    expectation = OutputExpectation(
        lines=(*_parse_lines(params, "metrics"), *_parse_lines(params, "samples")),
        tables=tuple(_parse_tables(params.get("table"))),
        json=tuple(_parse_json(params.get("json"))),
        must=_parse_patterns(params, "must"),
        never=_parse_patterns(params, "never"),
    )
    _reject_duplicates(expectation)
    return expectation


def _parse_lines(params: Mapping[str, Any], param: str) -> list[LineMetric]:
    lines = []
    for name, spec in _check_mapping(params.get(param), param).items():
        metric_param = f"{param}.{name}"
        _check_keys(spec, metric_param, ("pattern", *_METRIC_KEYS, "optional"))
        pattern = _parse_pattern(spec.get("pattern"), metric_param)
        if VALUE not in pattern.groupindex:
            raise ExpectationError(
                metric_param,
                f"its pattern has no group {VALUE}: write (?P<{VALUE}>...) where the number is",
            )
        lines.append(
            LineMetric(_parse_metric(name, spec, metric_param), pattern, param == "samples")
        )
    return lines


def _parse_json(value: Any) -> list[JsonMetric]:
    metrics = []
    for name, spec in _check_mapping(value, "json").items():
        metric_param = f"json.{name}"
        _check_keys(spec, metric_param, ("path", *_METRIC_KEYS, "optional"))
        metric = _parse_metric(name, spec, metric_param)
        metrics.append(JsonMetric(metric, _parse_path(spec.get("path"), metric_param)))
    return metrics


def _parse_path(value: Any, param: str) -> tuple[str | int, ...]:
    """Parse ``a.0.b``, or a list with keys that may contain dots."""
    if isinstance(value, list):
        step_texts = [str(step_text) for step_text in value]
    else:
        step_texts = value.split(".") if isinstance(value, str) else []
    if not any(step_texts):
        raise ExpectationError(
            param, "its path is missing: write keys and indices, a.0.b, or a list of them"
        )
    return tuple(int(step_text) if step_text.isdigit() else step_text for step_text in step_texts)


def _parse_tables(value: Any) -> list[OutputTable]:
    if value is None:
        return []
    table_specs = value if isinstance(value, list) else [value]
    if len(table_specs) == 1:
        return [_parse_table(table_specs[0], "table")]
    return [
        _parse_table(table_spec, f"table[{index}]") for index, table_spec in enumerate(table_specs)
    ]


def _parse_table(spec: Any, param: str) -> OutputTable:
    _check_keys(spec, param, _TABLE_KEYS)
    columns = _check_names(spec.get("columns"), f"{param}.columns")
    named_columns = [name for name in columns if name != SKIPPED]
    labels = _check_names(spec.get("labels", []), f"{param}.labels")
    allowed_texts_by_column = {
        name: tuple(map(str, texts if isinstance(texts, list) else [texts]))
        for name, texts in _check_mapping(spec.get("must"), f"{param}.must").items()
    }
    metrics = _check_mapping(spec.get("metrics"), f"{param}.metrics")

    for name in (*labels, *metrics, *allowed_texts_by_column):
        if name not in named_columns:
            raise ExpectationError(
                param, f"{name} is none of its columns, {', '.join(named_columns)}"
            )
    if len(set(named_columns)) < len(named_columns):
        raise ExpectationError(param, "a column is named twice")
    if not metrics:
        raise ExpectationError(param, "none of its columns is a metric: give metrics")
    context = _parse_patterns(spec, "context", f"{param}.context")
    if not all(pattern.groupindex for pattern in context):
        raise ExpectationError(
            f"{param}.context", "a pattern has no named group: write (?P<NAME>...) for each label"
        )

    rows = spec.get("rows")
    return OutputTable(
        header=_parse_pattern(spec.get("header"), f"{param}.header"),
        columns=tuple(columns),
        labels=tuple(labels),
        metrics={
            name: _parse_column(name, column, f"{param}.metrics.{name}")
            for name, column in metrics.items()
        },
        must=allowed_texts_by_column,
        fixed=_parse_labels(spec.get("fixed"), f"{param}.fixed"),
        rows=None if rows is None else _parse_pattern(rows, f"{param}.rows"),
        context=context,
        optional=_parse_optional(spec, param),
    )


def _parse_column(name: str, spec: Any, param: str) -> OutputMetric:
    _check_keys(spec, param, _METRIC_KEYS)
    return _parse_metric(name, spec, param)


def _parse_metric(name: Any, spec: Mapping[str, Any], param: str) -> OutputMetric:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ExpectationError(param, "a metric's name has letters, digits and _ alone")
    better = spec.get("better", "none")
    if better not in get_args(Better):
        raise ExpectationError(param, f"better is lower, higher or none, not {better!r}")
    scale = spec.get("scale", 1.0)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0 < scale < 1e18:
        raise ExpectationError(param, f"scale is a number above 0, not {scale!r}")
    unit = spec.get("unit", "")
    if not isinstance(unit, str):
        raise ExpectationError(param, f"unit is text, not {unit!r}")
    return OutputMetric(name, unit, better, float(scale), _parse_optional(spec, param))


def _parse_optional(spec: Mapping[str, Any], param: str) -> bool:
    optional = spec.get("optional", False)
    if not isinstance(optional, bool):
        raise ExpectationError(param, f"optional is true or false, not {optional!r}")
    return optional


def _parse_patterns(
    params: Mapping[str, Any], section: str, param: str | None = None
) -> tuple[re.Pattern[str], ...]:
    patterns = params.get(section)
    if patterns is None:
        return ()
    if not isinstance(patterns, list):
        patterns = [patterns]
    return tuple(_parse_pattern(pattern, param or section) for pattern in patterns)


def _parse_pattern(value: Any, param: str) -> re.Pattern[str]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise ExpectationError(param, "its pattern is missing")
    if len(value) > _MAX_PATTERN_LENGTH:
        message = f"its pattern is longer than {_MAX_PATTERN_LENGTH} characters"
        raise ExpectationError(param, message)
    try:
        return re.compile(value)
    except re.error as error:
        raise ExpectationError(param, f"{value!r} is no regular expression: {error}") from None


def _parse_labels(value: Any, param: str) -> dict[str, str]:
    return {str(name): str(text) for name, text in _check_mapping(value, param).items()}


def _check_mapping(value: Any, param: str) -> Mapping[str, Any]:
    """Return a mapping; an empty one for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ExpectationError(param, "it is a mapping from names")
    return value


def _check_keys(value: Any, param: str, allowed_keys: Sequence[str]) -> None:
    if not isinstance(value, Mapping):
        raise ExpectationError(param, f"it is a mapping with {', '.join(allowed_keys)}")
    for key in value:
        if key not in allowed_keys:
            raise ExpectationError(param, f"{key!r} is none of {', '.join(allowed_keys)}")


def _check_names(value: Any, param: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ExpectationError(param, "it is a list of names")
    return value


def _reject_duplicates(expectation: OutputExpectation) -> None:
    """Reject a metric of both a line and a table; tables may share metrics."""
    seen_names: set[str] = set()
    table_metric_names = {name for table in expectation.tables for name in table.metrics}
    for name in (
        *(line.metric.name for line in expectation.lines),
        *sorted(table_metric_names),
        *(document.metric.name for document in expectation.json),
    ):
        if name in seen_names:
            raise ExpectationError("metrics", f"{name} is asked for twice")
        seen_names.add(name)
