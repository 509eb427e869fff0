"""The expressions that bounds may be: arithmetic over numbers and figures of cases of the run.

::

    sum:     product (("+" | "-") product)*
    product: factor (("*" | "/") factor)*
    factor:  "-" factor | "(" sum ")" | ("min" | "max") "(" sum ("," sum)* ")" | figure | number
    figure:  "case" "(" (NAME | '"' ID '"') ")" "." METRIC ("." STATISTIC)?
    number:  as in YAML, or a number of bytes with its unit, as 64KiB

They are read and worked out here, by nothing but arithmetic on floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from spbench_core.catalog.parameters import read_bytes

MAX_LENGTH = 2000
MAX_DEPTH = 50

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?P<unit>[^\W\d_]*)", re.A)
_WORD = re.compile(r"[^\W\d]\w*", re.A)
_SIGN = re.compile(r"[-+*/(),.]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_QUOTED = re.compile(r'"((?:[^"]|"")+)"|\'((?:[^\']|\'\')+)\'')
_METRIC = re.compile(r"\w+(?:\.\w+)?", re.A)


class ExpressionError(Exception):
    """An expression that cannot be read or worked out.

    Attributes:
        at: Characters of it before the place that is wrong; 0 where it is the whole.
    """

    def __init__(self, message: str, at: int = 0) -> None:
        super().__init__(message)
        self.position = at


@dataclass(frozen=True, slots=True)
class CaseMetric:
    """``case(NAME).metric.statistic``: a figure of a case, named by its name or by its id.

    ``named`` says where the name, with its quotes, begins and ends in the text; ``at`` where the
    metric begins.
    """

    case: str
    metric: str
    name_span: tuple[int, int]
    metric_start: int


MetricLookup = Callable[[CaseMetric], float]
"""Returns a figure's value, or raises `ExpressionError`."""
_Value = Callable[[MetricLookup], float]


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was read: its text, and the figures in it in their order."""

    text: str
    metrics: tuple[CaseMetric, ...]
    _value: _Value

    def evaluate(self, look_up: MetricLookup) -> float:
        """Return what it comes to.

        Raises:
            ExpressionError: It divides by zero, is no finite number, or a figure is not known.
        """
        value = self._value(look_up)
        if not math.isfinite(value):
            raise ExpressionError("it comes to no finite number")
        return value

    def substitute_cases(self, ids: tuple[str, ...]) -> str:
        """Return the text with these ids, one for each figure, in place of the cases' names."""
        text = self.text
        for figure, case in reversed([*zip(self.metrics, ids, strict=True)]):
            start, end = figure.name_span
            text = text[:start] + _written(case) + text[end:]
        return text


def _written(case: str) -> str:
    quoted = case.replace('"', '""')
    return case if _NAME.fullmatch(case) else f'"{quoted}"'


@lru_cache(maxsize=1000)
def parse_expression(text: str) -> Expression:
    """Return the expression that a text is.

    Raises:
        ExpressionError: It is none.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"it is longer than {MAX_LENGTH} characters")
    return _Reader(text).read()


class _Reader:
    """Reads an expression, part by part, into a function that works it out."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._figures: list[CaseMetric] = []

    def read(self) -> Expression:
        value = self._sum()
        if self._start() < len(self._text):
            raise self._unexpected("+, -, *, / or the end")
        return Expression(self._text, tuple(self._figures), value)

    # Words

    def _start(self) -> int:
        """Return where the next word begins."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._at

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._start())
        self._at = found.end() if found else self._at
        return found

    def _sign(self, *signs: str) -> str:
        """Return the next sign and go on, if it is one of these; else an empty text."""
        found = _SIGN.match(self._text, self._start())
        if found is None or found[0] not in signs:
            return ""
        self._at = found.end()
        return found[0]

    def _need(self, sign: str) -> None:
        if not self._sign(sign):
            raise self._unexpected(sign)

    def _unexpected(self, expected: str) -> ExpressionError:
        at = self._start()
        found = _WORD.match(self._text, at) or _NUMBER.match(self._text, at)
        shown = found[0] if found else self._text[at : at + 1]
        told = repr(shown[:40]) if shown else "the end"
        return ExpressionError(f"expected {expected}, not {told}", at)

    # Parts

    def _sum(self) -> _Value:
        return self._chain(self._product, "+", "-")

    def _product(self) -> _Value:
        return self._chain(self._factor, "*", "/")

    def _chain(self, part: Callable[[], _Value], *signs: str) -> _Value:
        first = part()
        rest = list[tuple[str, _Value]]()
        while sign := self._sign(*signs):
            rest.append((sign, part()))

        def value(look_up: MetricLookup) -> float:
            result = first(look_up)
            for sign, operand in rest:
                result = _apply(sign, result, operand(look_up))
            return result

        return value if rest else first

    def _factor(self) -> _Value:
        negative = False
        while self._sign("-"):
            negative = not negative
        value = self._plain()
        return (lambda look_up: -value(look_up)) if negative else value

    def _plain(self) -> _Value:
        if self._sign("("):
            return self._deeper(self._group)
        if number := self._take(_NUMBER):
            constant = _constant(number)
            return lambda _: constant
        before = self._start()
        word = self._take(_WORD)
        if word and word[0] == "case":
            return self._figure()
        if word and word[0] in ("min", "max"):
            self._need("(")
            return self._deeper(lambda: self._choice(min if word[0] == "min" else max))
        self._at = before
        raise self._unexpected("a number, case(NAME).metric, min(...), max(...) or (")

    def _deeper(self, read: Callable[[], _Value]) -> _Value:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"it nests deeper than {MAX_DEPTH} levels", self._at)
        value = read()
        self._depth -= 1
        return value

    def _group(self) -> _Value:
        value = self._sum()
        self._need(")")
        return value

    def _choice(self, choose: Callable[[list[float]], float]) -> _Value:
        values = [self._sum()]
        while self._sign(","):
            values.append(self._sum())
        self._need(")")
        return lambda look_up: choose([value(look_up) for value in values])

    def _figure(self) -> _Value:
        self._need("(")
        begin = self._start()
        case = self._case()
        end = self._at
        self._need(")")
        self._need(".")
        at = self._start()
        metric = self._take(_METRIC)
        if metric is None:
            raise self._unexpected("a metric, as in case(NAME).time_ms.p50,")
        figure = CaseMetric(case, metric[0], (begin, end), at)
        self._figures.append(figure)
        return lambda look_up: look_up(figure)

    def _case(self) -> str:
        if quoted := self._take(_QUOTED):
            one, other = quoted.groups()
            return one.replace('""', '"') if one else other.replace("''", "'")
        if name := self._take(_NAME):
            if self._text[self._at : self._at + 1] == "[":
                raise ExpressionError('an id with brackets stands in quotes: case("...")', self._at)
            return name[0]
        raise self._unexpected("a case's name, or its id in quotes,")


def _constant(number: re.Match[str]) -> float:
    if number["unit"]:
        try:
            return float(read_bytes(number[0]))
        except (ValueError, OverflowError):
            message = f"{number[0][:40]!r} is no number; of units there are those of bytes (64KiB)"
            raise ExpressionError(message, number.start()) from None
    value = float(number["number"])
    if not math.isfinite(value):
        raise ExpressionError(f"{number[0][:40]} is too large", number.start())
    return value


def _apply(sign: str, left: float, right: float) -> float:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if right == 0:
        raise ExpressionError("it divides by zero")
    return left / right
