"""``--case ID`` and ``-k EXPR``: chooses cases by name, or by words in it as pytest does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from spbench.errors import NothingSelected, UsageError, did_you_mean
from spbench.suites.case import Case
from spbench_core.number_text import format_quantity

MAX_DEPTH = 100
_TOKEN = re.compile(r"[()]|[^\s()]+")
_Test = Callable[[str], bool]


def select_named(cases: Sequence[Case], words: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases that the words name: one by its id, all points of a sweep by their name.

    Raises:
        UsageError: A word names none of them.
    """
    known = dict.fromkeys(word for case in cases for word in (case.id, case.name))
    for word in words:
        if word not in known:
            raise UsageError(f"--case {word}: no case is called so{did_you_mean(word, known)}")
    meant = set(words)
    return tuple(case for case in cases if case.id in meant or case.name in meant)


def select_matching(cases: Sequence[Case], expression: str) -> tuple[Case, ...]:
    """Return the cases whose id or benchmark fits the expression; a blank one fits all.

    Words are case-insensitive substrings, joined by ``and``, ``or``, ``not`` and parentheses.

    Raises:
        UsageError: The expression cannot be read.
        NothingSelected: No case fits it.
    """
    test = _Reader(expression).read() if expression.strip() else (lambda _: True)
    chosen = tuple(case for case in cases if test(f"{case.id}\n{case.benchmark}".lower()))
    if not chosen:
        number = format_quantity(len(cases), "case")
        raise NothingSelected(f"-k {expression!r} selects none of the {number}")
    return chosen


class _Reader:
    """Reads an expression into a test of a case's words.

    expression: term (``or`` term)*; term: factor (``and`` factor)*;
    factor: ``not`` factor, ``(`` expression ``)`` or a word.
    """

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens: list[re.Match[str]] = list(_TOKEN.finditer(expression))
        self._at = 0
        self._depth = 0

    def read(self) -> _Test:
        test = self._any_of()
        if self._at < len(self._tokens):
            raise self._error("and, or, or the end")
        return test

    def _next(self, *words: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at][0] in words
        self._at += found
        return found

    def _error(self, expected: str) -> UsageError:
        if self._at >= len(self._tokens):
            found = "the end"
        else:
            token = self._tokens[self._at]
            found = f"{token[0]!r} (column {token.start() + 1})"
        return UsageError(f"-k {self._expression!r}: expected {expected}, not {found}")

    def _any_of(self) -> _Test:
        tests = [self._all_of()]
        while self._next("or"):
            tests.append(self._all_of())
        return lambda words: any(test(words) for test in tests)

    def _all_of(self) -> _Test:
        tests = [self._factor()]
        while self._next("and"):
            tests.append(self._factor())
        return lambda words: all(test(words) for test in tests)

    def _factor(self) -> _Test:
        negated = False
        while self._next("not"):
            negated = not negated
        test = self._group() if self._next("(") else self._word()
        return (lambda words: not test(words)) if negated else test

    def _group(self) -> _Test:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UsageError(f"-k: its parentheses nest deeper than {MAX_DEPTH} levels")
        test = self._any_of()
        if not self._next(")"):
            raise self._error("and, or, or )")
        self._depth -= 1
        return test

    def _word(self) -> _Test:
        if self._at >= len(self._tokens) or self._tokens[self._at][0] in ("and", "or", "(", ")"):
            raise self._error("a word, not, or (")
        word = self._tokens[self._at][0].lower()
        self._at += 1
        return lambda words: word in words
