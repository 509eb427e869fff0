"""Selection of cases: ``--case ID`` by name, and ``-k EXPR`` by words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from spbench.errors import NothingSelected, UsageError, did_you_mean
from spbench.suites.case import Case
from spbench_core.number_text import format_quantity

MAX_DEPTH = 100
_TOKEN = re.compile(r"[()]|[^\s()]+")
_Test = Callable[[str], bool]


def select_named(cases: Sequence[Case], names: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases with an id or a name; the points of a sweep have the same name.

    Raises:
        UsageError: No case has one of the names.
    """
    choices = dict.fromkeys(name for case in cases for name in (case.id, case.name))
    for name in names:
        if name not in choices:
            raise UsageError(f"--case {name}: no case is called so{did_you_mean(name, choices)}")
    selected = set(names)
    return tuple(case for case in cases if case.id in selected or case.name in selected)


def select_matching(cases: Sequence[Case], expression: str) -> tuple[Case, ...]:
    """Return the cases with a matching id or benchmark; blank matches all.

    Words are case-insensitive substrings, joined by ``and``, ``or``, ``not`` and parentheses.

    Raises:
        UsageError: The expression cannot be parsed.
        NothingSelected: No case matches.
    """
    test = _Parser(expression).parse() if expression.strip() else (lambda _: True)
    selected = tuple(case for case in cases if test(f"{case.id}\n{case.benchmark}".lower()))
    if not selected:
        count = format_quantity(len(cases), "case")
        raise NothingSelected(f"-k {expression!r} selects none of the {count}")
    return selected


class _Parser:
    """A parser of expressions into tests of a case's text.

    expression: term (``or`` term)*; term: factor (``and`` factor)*;
    factor: ``not`` factor, ``(`` expression ``)`` or a word.
    """

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens: list[re.Match[str]] = list(_TOKEN.finditer(expression))
        self._index = 0
        self._depth = 0

    def parse(self) -> _Test:
        test = self._parse_expression()
        if self._index < len(self._tokens):
            raise self._make_error("and, or, or the end")
        return test

    def _accept(self, token: str) -> bool:
        """Consume the next token if it is this one; return whether it is."""
        is_accepted = self._index < len(self._tokens) and self._tokens[self._index][0] == token
        self._index += is_accepted
        return is_accepted

    def _make_error(self, expected: str) -> UsageError:
        if self._index >= len(self._tokens):
            actual = "the end"
        else:
            token = self._tokens[self._index]
            actual = f"{token[0]!r} (column {token.start() + 1})"
        return UsageError(f"-k {self._expression!r}: expected {expected}, not {actual}")

    def _parse_expression(self) -> _Test:
        tests = [self._parse_term()]
        while self._accept("or"):
            tests.append(self._parse_term())
        return lambda text: any(test(text) for test in tests)

    def _parse_term(self) -> _Test:
        tests = [self._parse_factor()]
        while self._accept("and"):
            tests.append(self._parse_factor())
        return lambda text: all(test(text) for test in tests)

    def _parse_factor(self) -> _Test:
        negated = False
        while self._accept("not"):
            negated = not negated
        test = self._parse_group() if self._accept("(") else self._parse_word()
        return (lambda text: not test(text)) if negated else test

    def _parse_group(self) -> _Test:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UsageError(f"-k: its parentheses nest deeper than {MAX_DEPTH} levels")
        test = self._parse_expression()
        if not self._accept(")"):
            raise self._make_error("and, or, or )")
        self._depth -= 1
        return test

    def _parse_word(self) -> _Test:
        reserved = ("and", "or", "(", ")")
        if self._index >= len(self._tokens) or self._tokens[self._index][0] in reserved:
            raise self._make_error("a word, not, or (")
        word = self._tokens[self._index][0].lower()
        self._index += 1
        return lambda text: word in text
