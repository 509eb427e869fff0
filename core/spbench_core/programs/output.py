"""Reader of a program's output: splits bytes into lines and finds metrics in them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spbench_core.programs.expectation import (
    SKIPPED,
    VALUE,
    JsonMetric,
    OutputExpectation,
    OutputMetric,
    OutputTable,
)

MAX_LINE_BYTES = 16 << 10
"""Bytes of the longest line; the remainder of a longer one is dropped."""
MAX_DOCUMENT = 16 << 20
"""Characters of the longest JSON document."""
MAX_POINTS = 100_000
"""Points of tables that are kept."""
MAX_FOREIGN_LINES = 50
"""Lines of other programs that a JSON document may contain."""
MAX_EXAMPLES = 20
"""Lines that break a rule and are kept as examples."""


class LineSplitter:
    """A splitter of bytes into decoded lines; invalid bytes are replaced."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._dropping = False

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines that are complete with these bytes."""
        *complete, last = data.split(b"\n")
        for piece in complete:
            if self._dropping:
                self._dropping = False
            else:
                yield _decode(bytes(self._buffer) + piece)
            self._buffer.clear()
        if not self._dropping:
            self._buffer += last
        if len(self._buffer) > MAX_LINE_BYTES:
            yield _decode(bytes(self._buffer))
            self._buffer.clear()
            self._dropping = True

    def flush(self) -> Iterator[str]:
        """Yield the last line, if it has no line end."""
        if self._buffer:
            yield _decode(bytes(self._buffer))
            self._buffer.clear()


def _decode(line: bytes) -> str:
    return line[:MAX_LINE_BYTES].decode(errors="replace").rstrip("\r").rpartition("\r")[2]


@dataclass(frozen=True, slots=True)
class TablePoint:
    """A value of a metric at one point of a sweep."""

    metric: str
    labels: Mapping[str, str | int | float]
    value: float


@dataclass(slots=True)
class OutputResult:
    """The metrics of a program's output, and the expectations that it does not meet.

    Attributes:
        values: The value of each metric; for a table that of its last row.
        samples: All values of the sampled metrics.
        points: The values of tables.
        missing: Required patterns without a match, and required metrics without a value.
        forbidden: Lines that match a pattern of ``never``, and rows without a required word.
    """

    values: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    points: list[TablePoint] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)


class OutputReader:
    """A reader of one program's output, line by line.

    Args:
        expectation: The expected output.
        report: Called with the metric's name and each new value.
    """

    def __init__(
        self,
        expectation: OutputExpectation,
        report: Callable[[str, float], object] = lambda *_: None,
    ) -> None:
        self._expectation = expectation
        self._report = report
        self._output = OutputResult()
        self._unmatched = list(expectation.must)
        self._table: OutputTable | None = None
        self._context_patterns = {
            pattern for table in expectation.tables for pattern in table.context
        }
        self._groups_by_context: dict[re.Pattern[str], dict[str, str | None]] = {}
        self._required = set(expectation.required)
        self._document_lines: list[str] | None = [] if expectation.json else None
        self._document_length = 0

    def read_line(self, line: str) -> None:
        """Read one line."""
        self._match_patterns(line)
        self._read_metrics(line)
        self._read_table(line)
        if self._document_lines is not None and self._document_length < MAX_DOCUMENT:
            self._document_lines.append(line)
            self._document_length += len(line) + 1

    def finish(self) -> OutputResult:
        """Return the metrics and unmet expectations, after the output has ended."""
        output = self._output
        if self._document_lines is not None:
            self._read_document("\n".join(self._document_lines))
        output.missing += [pattern.pattern for pattern in self._unmatched]
        output.missing += [
            f"a value of {name}"
            for name in self._expectation.metrics
            if name in self._required and name not in output.values
        ]
        return output

    def _match_patterns(self, line: str) -> None:
        self._unmatched = [pattern for pattern in self._unmatched if not pattern.search(line)]
        if any(pattern.search(line) for pattern in self._expectation.never):
            self._add_forbidden(line)

    def _read_metrics(self, line: str) -> None:
        for line_metric in self._expectation.lines:
            if (match := line_metric.pattern.search(line)) is None:
                continue
            value = parse_number(match[VALUE])
            if value is None:
                self._add_forbidden(f"{line_metric.metric.name} is no number: {line}")
                continue
            value = self._add_value(line_metric.metric, value)
            if line_metric.sampled:
                self._output.samples.setdefault(line_metric.metric.name, []).append(value)

    def _read_table(self, line: str) -> None:
        for pattern in self._context_patterns:
            if (match := pattern.search(line)) is not None:
                self._groups_by_context[pattern] = match.groupdict()
        tables = self._expectation.tables
        started_table = next((table for table in tables if table.header.search(line)), None)
        if started_table is not None:
            self._table = started_table
            self._required.update(metric.name for metric in started_table.metrics.values())
            return
        table = self._table
        if table is None:
            return
        if table.rows is not None:
            if table.rows.search(line) and not self._read_row(table, line):
                self._add_forbidden(f"a row that cannot be read: {line}")
        elif not self._read_row(table, line) and not _may_separate_rows(line):
            self._table = None

    def _read_row(self, table: OutputTable, line: str) -> bool:
        """Read a row; return whether the line is one."""
        cell_texts = line.split()
        if len(cell_texts) != len(table.columns):
            return False
        text_by_column = dict(zip(table.columns, cell_texts, strict=True))
        text_by_column.pop(SKIPPED, None)
        number_by_column = {name: parse_number(text_by_column[name]) for name in table.metrics}
        if any(value is None for value in number_by_column.values()):
            return False
        labels = {**table.fixed, **self._read_context(table)}
        labels.update({name: _parse_label(text_by_column[name]) for name in table.labels})
        for name, value in number_by_column.items():
            assert value is not None, "rows without a number were returned"
            metric = table.metrics[name]
            scaled_number = self._add_value(metric, value)
            if len(self._output.points) < MAX_POINTS:
                self._output.points.append(TablePoint(metric.name, labels, scaled_number))
        for name, allowed_texts in table.must.items():
            if text_by_column[name] not in allowed_texts:
                allowed_text = " or ".join(allowed_texts)
                self._add_forbidden(
                    f"{name} is {text_by_column[name]}, not {allowed_text}: {line.strip()}"
                )
        return True

    def _read_context(self, table: OutputTable) -> dict[str, str | int | float]:
        """Return the labels from the last match of each context pattern of a table."""
        groups_by_pattern = [self._groups_by_context.get(pattern, {}) for pattern in table.context]
        return {
            name: _parse_label(text)
            for matched_groups in groups_by_pattern
            for name, text in matched_groups.items()
            if text is not None
        }

    def _read_document(self, text: str) -> None:
        document = find_document(text)
        if document is None:
            self._output.missing.append("a JSON document")
            return
        for json_metric in self._expectation.json:
            value = find_number(document, json_metric)
            if value is not None:
                self._add_value(json_metric.metric, value)

    def _add_value(self, metric: OutputMetric, value: float) -> float:
        """Record and report a value; return it in the metric's unit."""
        value *= metric.scale
        self._output.values[metric.name] = value
        self._report(metric.name, value)
        return value

    def _add_forbidden(self, text: str) -> None:
        if len(self._output.forbidden) < MAX_EXAMPLES:
            self._output.forbidden.append(text.strip())


def _may_separate_rows(line: str) -> bool:
    """Return whether a line can be between rows: blank, a comment or a rule."""
    return line.lstrip().startswith("#") or not any(map(str.isalnum, line))


def parse_number(text: str) -> float | None:
    """Parse a finite number such as ``1,234.5``, or return None."""
    if "_" in text:  # a separator in Python only; programs do not print it
        return None
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d*)?", text):
        text = text.replace(",", "")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def find_number(document: Any, metric: JsonMetric) -> float | None:
    """Return the finite number of a metric in a JSON document, or None."""
    for step in metric.path:
        if isinstance(document, dict):
            document = document.get(str(step))
        elif isinstance(document, list) and isinstance(step, int) and step < len(document):
            document = document[step]
        else:
            return None
    if isinstance(document, bool) or not isinstance(document, (int, float)):
        return None
    return float(document) if math.isfinite(document) else None


def _parse_label(text: str) -> str | int | float:
    value = parse_number(text)
    if value is None:
        return text
    return int(value) if value.is_integer() else value


def find_document(text: str) -> Any:
    """Return the JSON object in a text, or None.

    The text may begin and end with other lines. The object may contain up to `MAX_FOREIGN_LINES`
    lines of other programs, such as warnings of a launcher: if parsing fails, the line is removed.
    """
    start = text.find("{")
    dropped_lines = 0
    while start >= 0:
        try:
            return json.JSONDecoder().raw_decode(text, start)[0]
        except json.JSONDecodeError as error:
            line_start = text.rfind("\n", 0, error.pos) + 1
            if line_start > start and dropped_lines < MAX_FOREIGN_LINES and error.pos < len(text):
                dropped_lines += 1
                text = text[:line_start] + text[error.pos :].partition("\n")[2]
            else:
                start = text.find("\n{", start + 1) + 1 or -1
        except (ValueError, RecursionError):
            start = text.find("\n{", start + 1) + 1 or -1
    return None
