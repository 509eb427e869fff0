"""A sample of many like cases for `make test`; `make all` runs them all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import pytest


class CaseSample:
    """A sample of cases: the first of each kind, each so many of all, and those that are named.

    Args:
        cases: All cases.
        kind: Says of what kind a case is.
        named: Cases that tests read which are not given them as parameters.
        every: Of so many cases one.
    """

    def __init__(
        self,
        cases: Sequence[Any],
        kind: Callable[[Any], Hashable],
        named: Iterable[Any] = (),
        every: int = 4,
    ) -> None:
        kinds = [kind(case) for case in cases]
        firsts = {kinds.index(one) for one in kinds}
        self._cases = cases
        self._named = list(named)
        chosen = [case for at, case in enumerate(cases) if at in firsts or at % every == 0]
        self._always = chosen + self._named

    def make_params(self, cases: Iterable[Any]) -> list[Any]:
        """Return cases as the parameters of tests: long ones, but for those of the sample."""
        long = pytest.mark.long
        return [pytest.param(case, marks=() if case in self._always else long) for case in cases]

    def select_requested(self, request: pytest.FixtureRequest) -> list[Any]:
        """Return the cases, in their order, that tests of the fixture's file are to run."""
        given = [
            value
            for test in request.session.items
            if test.path == request.path and isinstance(test, pytest.Function)
            for value in getattr(getattr(test, "callspec", None), "params", {}).values()
        ]
        return [case for case in self._cases if case in given or case in self._named]
