"""Expressions in bounds: arithmetic with numbers and metrics of cases of the run.

::

    sum:     product (("+" | "-") product)*
    product: factor (("*" | "/") factor)*
    factor:  "-" factor | "(" sum ")" | ("min" | "max") "(" sum ("," sum)* ")" | metric | number
    metric:  "case" "(" (NAME | '"' ID '"') ")" "." METRIC ("." STATISTIC)?
    number:  a number of YAML, or a number of bytes with its unit, such as 64KiB

They are parsed and evaluated here, with arithmetic on floats only.
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
    """An expression that cannot be parsed or evaluated.

    Attributes:
        position: The index of the character at the error; 0 if it is the whole expression.
    """

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True, slots=True)
class CaseMetric:
    """A metric of a case in an expression: ``case(NAME).metric.statistic``.

    Attributes:
        case: The name or the id of the case.
        metric: The metric, possibly with a statistic.
        name_span: Start and end of the case's name in the text, including quotes.
        metric_start: Start of the metric in the text.
    """

    case: str
    metric: str
    name_span: tuple[int, int]
    metric_start: int


MetricLookup = Callable[[CaseMetric], float]
"""Returns the value of a metric, or raises `ExpressionError`."""
_Evaluator = Callable[[MetricLookup], float]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: its text, and its metrics of cases in their order."""

    text: str
    metrics: tuple[CaseMetric, ...]
    _evaluator: _Evaluator

    def evaluate(self, look_up: MetricLookup) -> float:
        """Return the value of the expression.

        Raises:
            ExpressionError: It divides by zero, the result is not finite, or a metric is unknown.
        """
        value = self._evaluator(look_up)
        if not math.isfinite(value):
            raise ExpressionError("it comes to no finite number")
        return value

    def substitute_cases(self, ids: tuple[str, ...]) -> str:
        """Return the text with the case of each metric replaced by an id."""
        text = self.text
        # From the last to the first, so that earlier spans stay valid.
        for metric, case_id in reversed([*zip(self.metrics, ids, strict=True)]):
            start, end = metric.name_span
            text = text[:start] + _quote_case(case_id) + text[end:]
        return text


def _quote_case(case: str) -> str:
    quoted = case.replace('"', '""')
    return case if _NAME.fullmatch(case) else f'"{quoted}"'


@lru_cache(maxsize=1000)
def parse_expression(text: str) -> Expression:
    """Parse an expression.

    Raises:
        ExpressionError: The text is not a valid expression.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"it is longer than {MAX_LENGTH} characters")
    return _Parser(text).parse()


class _Parser:
    """A recursive descent parser of an expression into a function that evaluates it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._metrics: list[CaseMetric] = []

    def parse(self) -> Expression:
        evaluator = self._parse_sum()
        if self._skip_space() < len(self._text):
            raise self._make_error("+, -, *, / or the end")
        return Expression(self._text, tuple(self._metrics), evaluator)

    def _skip_space(self) -> int:
        """Return the start of the next token."""
        space = _SPACE.match(self._text, self._position)
        self._position = space.end() if space else self._position
        return self._position

    def _accept(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Consume the next token if it matches."""
        match = pattern.match(self._text, self._skip_space())
        self._position = match.end() if match else self._position
        return match

    def _accept_sign(self, *signs: str) -> str:
        """Consume and return the next sign if it is one of these; otherwise return ''."""
        match = _SIGN.match(self._text, self._skip_space())
        if match is None or match[0] not in signs:
            return ""
        self._position = match.end()
        return match[0]

    def _expect_sign(self, sign: str) -> None:
        if not self._accept_sign(sign):
            raise self._make_error(sign)

    def _make_error(self, expected: str) -> ExpressionError:
        position = self._skip_space()
        match = _WORD.match(self._text, position) or _NUMBER.match(self._text, position)
        token = match[0] if match else self._text[position : position + 1]
        actual = repr(token[:40]) if token else "the end"
        return ExpressionError(f"expected {expected}, not {actual}", position)

    def _parse_sum(self) -> _Evaluator:
        return self._parse_chain(self._parse_product, "+", "-")

    def _parse_product(self) -> _Evaluator:
        return self._parse_chain(self._parse_factor, "*", "/")

    def _parse_chain(self, parse: Callable[[], _Evaluator], *signs: str) -> _Evaluator:
        first = parse()
        operands = list[tuple[str, _Evaluator]]()
        while sign := self._accept_sign(*signs):
            operands.append((sign, parse()))

        def evaluate(look_up: MetricLookup) -> float:
            running_value = first(look_up)
            for sign, operand in operands:
                running_value = _calculate(sign, running_value, operand(look_up))
            return running_value

        return evaluate if operands else first

    def _parse_factor(self) -> _Evaluator:
        negative = False
        while self._accept_sign("-"):
            negative = not negative
        evaluate = self._parse_operand()
        return (lambda look_up: -evaluate(look_up)) if negative else evaluate

    def _parse_operand(self) -> _Evaluator:
        if self._accept_sign("("):
            return self._parse_nested(self._parse_group)
        if number := self._accept(_NUMBER):
            constant = _parse_constant(number)
            return lambda _: constant
        start = self._skip_space()
        word = self._accept(_WORD)
        if word and word[0] == "case":
            return self._parse_metric()
        if word and word[0] in ("min", "max"):
            self._expect_sign("(")
            choose = min if word[0] == "min" else max
            return self._parse_nested(lambda: self._parse_choice(choose))
        self._position = start
        raise self._make_error("a number, case(NAME).metric, min(...), max(...) or (")

    def _parse_nested(self, parse: Callable[[], _Evaluator]) -> _Evaluator:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"it nests deeper than {MAX_DEPTH} levels", self._position)
        evaluate = parse()
        self._depth -= 1
        return evaluate

    def _parse_group(self) -> _Evaluator:
        evaluate = self._parse_sum()
        self._expect_sign(")")
        return evaluate

    def _parse_choice(self, choose: Callable[[list[float]], float]) -> _Evaluator:
        arguments = [self._parse_sum()]
        while self._accept_sign(","):
            arguments.append(self._parse_sum())
        self._expect_sign(")")
        return lambda look_up: choose([evaluate(look_up) for evaluate in arguments])

    def _parse_metric(self) -> _Evaluator:
        self._expect_sign("(")
        name_start = self._skip_space()
        case = self._parse_case()
        name_end = self._position
        self._expect_sign(")")
        self._expect_sign(".")
        metric_start = self._skip_space()
        match = self._accept(_METRIC)
        if match is None:
            raise self._make_error("a metric, as in case(NAME).time_ms.p50,")
        metric = CaseMetric(case, match[0], (name_start, name_end), metric_start)
        self._metrics.append(metric)
        return lambda look_up: look_up(metric)

    def _parse_case(self) -> str:
        if quoted := self._accept(_QUOTED):
            double, single = quoted.groups()
            return double.replace('""', '"') if double else single.replace("''", "'")
        if name := self._accept(_NAME):
            if self._text[self._position : self._position + 1] == "[":
                message = 'an id with brackets stands in quotes: case("...")'
                raise ExpressionError(message, self._position)
            return name[0]
        raise self._make_error("a case's name, or its id in quotes,")


def _parse_constant(number: re.Match[str]) -> float:
    if number["unit"]:
        try:
            return float(read_bytes(number[0]))
        except (ValueError, OverflowError):
            message = f"{number[0][:40]!r} is no number; of units there are those of bytes (64KiB)"
            raise ExpressionError(message, number.start()) from None
    constant = float(number["number"])
    if not math.isfinite(constant):
        raise ExpressionError(f"{number[0][:40]} is too large", number.start())
    return constant


def _calculate(sign: str, left_operand: float, right_operand: float) -> float:
    if sign == "+":
        return left_operand + right_operand
    if sign == "-":
        return left_operand - right_operand
    if sign == "*":
        return left_operand * right_operand
    if right_operand == 0:
        raise ExpressionError("it divides by zero")
    return left_operand / right_operand
