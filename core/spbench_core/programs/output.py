"""The output of a program, read as it comes: lines out of bytes, and what they hold."""

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
"""Bytes of the longest line that is looked at; a longer one is cut, and its rest dropped."""
MAX_DOCUMENT = 16 << 20
"""Characters of the longest JSON document."""
MAX_POINTS = 100_000
MAX_FOREIGN_LINES = 50
"""Lines of others that a JSON document may hold."""
MAX_EXAMPLES = 20
"""Words of a rule that was broken that are kept, as examples."""


class LineSplitter:
    """A splitter of bytes into lines: decoded, without ends of line, what is not text replaced."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._dropping = False

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines that these bytes complete."""
        *whole, rest = data.split(b"\n")
        for piece in whole:
            if self._dropping:
                self._dropping = False
            else:
                yield _text(bytes(self._rest) + piece)
            self._rest.clear()
        if not self._dropping:
            self._rest += rest
        if len(self._rest) > MAX_LINE_BYTES:
            yield _text(bytes(self._rest))
            self._rest.clear()
            self._dropping = True

    def flush(self) -> Iterator[str]:
        """Yield what has come without an end of line."""
        if self._rest:
            yield _text(bytes(self._rest))
            self._rest.clear()


def _text(line: bytes) -> str:
    return line[:MAX_LINE_BYTES].decode(errors="replace").rstrip("\r").rpartition("\r")[2]


@dataclass(frozen=True, slots=True)
class TablePoint:
    """A value of a metric at one point of a sweep."""

    metric: str
    labels: Mapping[str, str | int | float]
    value: float


@dataclass(slots=True)
class OutputFindings:
    """The findings of a program's output.

    Attributes:
        values: The value of each metric that stands in a line or in a document; of a table's, that
            of its last row.
        samples: All values of the metrics that are sampled.
        points: The values of tables.
        missing: Patterns that must stand in some line, and stand in none, and metrics that were
            found nowhere.
        forbidden: Lines that no pattern of `never` should match, and rows without their word.
    """

    values: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    points: list[TablePoint] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)


class OutputReader:
    """A reader of one program's output, line by line.

    Args:
        expectation: What is looked for.
        say: Called with each new value: the metric's name, and the value.
    """

    def __init__(
        self, expectation: OutputExpectation, say: Callable[[str, float], object] = lambda *_: None
    ) -> None:
        self._expectation = expectation
        self._say = say
        self._found = OutputFindings()
        self._unseen = list(expectation.must)
        self._table: OutputTable | None = None
        self._contexts = {pattern for table in expectation.tables for pattern in table.context}
        self._context: dict[re.Pattern[str], dict[str, str | None]] = {}
        self._needed = set(expectation.required)
        self._document: list[str] | None = [] if expectation.json else None
        self._length = 0

    def read_line(self, line: str) -> None:
        """Read one line."""
        self._look_for_marks(line)
        self._look_for_figures(line)
        self._read_table(line)
        if self._document is not None and self._length < MAX_DOCUMENT:
            self._document.append(line)
            self._length += len(line) + 1

    def finish(self) -> OutputFindings:
        """Return what was found, when the output has ended."""
        found = self._found
        if self._document is not None:
            self._read_document("\n".join(self._document))
        found.missing += [pattern.pattern for pattern in self._unseen]
        found.missing += [
            f"a value of {name}"
            for name in self._expectation.metrics
            if name in self._needed and name not in found.values
        ]
        return found

    def _look_for_marks(self, line: str) -> None:
        self._unseen = [pattern for pattern in self._unseen if not pattern.search(line)]
        if any(pattern.search(line) for pattern in self._expectation.never):
            self._forbid(line)

    def _look_for_figures(self, line: str) -> None:
        for looked in self._expectation.lines:
            if (match := looked.pattern.search(line)) is None:
                continue
            value = parse_number(match[VALUE])
            if value is None:
                self._forbid(f"{looked.metric.name} is no number: {line}")
                continue
            value = self._take(looked.metric, value)
            if looked.sampled:
                self._found.samples.setdefault(looked.metric.name, []).append(value)

    def _read_table(self, line: str) -> None:
        for pattern in self._contexts:
            if (match := pattern.search(line)) is not None:
                self._context[pattern] = match.groupdict()
        begun = next((t for t in self._expectation.tables if t.header.search(line)), None)
        if begun is not None:
            self._table = begun
            self._needed.update(figure.name for figure in begun.metrics.values())
        elif self._table is not None and self._table.rows is not None:
            if self._table.rows.search(line) and not self._row(self._table, line):
                self._forbid(f"a row that cannot be read: {line}")
        elif self._table is not None and not (
            self._row(self._table, line) or _stands_between_rows(line)
        ):
            self._table = None

    def _row(self, table: OutputTable, line: str) -> bool:
        words = line.split()
        if len(words) != len(table.columns):
            return False
        cells = dict(zip(table.columns, words, strict=True))
        cells.pop(SKIPPED, None)
        values = {name: parse_number(cells[name]) for name in table.metrics}
        if any(value is None for value in values.values()):
            return False
        labels = {**table.fixed, **self._labels(table)}
        labels.update({name: _label(cells[name]) for name in table.labels})
        for name, value in values.items():
            assert value is not None, "rows without a number were returned"
            taken = self._take(table.metrics[name], value)
            if len(self._found.points) < MAX_POINTS:
                self._found.points.append(TablePoint(table.metrics[name].name, labels, taken))
        for name, right in table.must.items():
            if cells[name] not in right:
                self._forbid(f"{name} is {cells[name]}, not {' or '.join(right)}: {line.strip()}")
        return True

    def _labels(self, table: OutputTable) -> dict[str, str | int | float]:
        groups = [self._context.get(pattern, {}) for pattern in table.context]
        found = {name: word for group in groups for name, word in group.items() if word is not None}
        return {name: _label(word) for name, word in found.items()}

    def _read_document(self, text: str) -> None:
        document = find_document(text)
        if document is None:
            self._found.missing.append("a JSON document")
            return
        for looked in self._expectation.json:
            value = find_number(document, looked)
            if value is not None:
                self._take(looked.metric, value)

    def _take(self, figure: OutputMetric, value: float) -> float:
        value *= figure.scale
        self._found.values[figure.name] = value
        self._say(figure.name, value)
        return value

    def _forbid(self, words: str) -> None:
        if len(self._found.forbidden) < MAX_EXAMPLES:
            self._found.forbidden.append(words.strip())


def _stands_between_rows(line: str) -> bool:
    """Whether a table goes on after a line that is no row: a blank one, a comment or a rule."""
    return line.lstrip().startswith("#") or not any(map(str.isalnum, line))


def parse_number(text: str) -> float | None:
    """Return the finite number that a text is, ``1,234.5`` too; None: it is none."""
    if "_" in text:  # Python's own separator, and no program's
        return None
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d*)?", text):
        text = text.replace(",", "")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def find_number(document: Any, looked: JsonMetric) -> float | None:
    """Return the number at a path of a document; None: there is none."""
    for step in looked.path:
        if isinstance(document, dict):
            document = document.get(str(step))
        elif isinstance(document, list) and isinstance(step, int) and step < len(document):
            document = document[step]
        else:
            return None
    if isinstance(document, bool) or not isinstance(document, (int, float)):
        return None
    return float(document) if math.isfinite(document) else None


def _label(word: str) -> str | int | float:
    value = parse_number(word)
    if value is None:
        return word
    return int(value) if value.is_integer() else value


def find_document(text: str) -> Any:
    """Return the JSON object in a text; None: there is none.

    The text may begin and end with other lines, and up to `MOST_BETWEEN` may stand in the object,
    as a launcher's warnings do: a line where reading it breaks off is left out.
    """
    start = text.find("{")
    dropped = 0
    while start >= 0:
        try:
            return json.JSONDecoder().raw_decode(text, start)[0]
        except json.JSONDecodeError as error:
            first = text.rfind("\n", 0, error.pos) + 1
            if first > start and dropped < MAX_FOREIGN_LINES and error.pos < len(text):
                dropped += 1
                text = text[:first] + text[error.pos :].partition("\n")[2]
            else:
                start = text.find("\n{", start + 1) + 1 or -1
        except (ValueError, RecursionError):
            start = text.find("\n{", start + 1) + 1 or -1
    return None
