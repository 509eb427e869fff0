"""A sample of many similar cases for `make test`; `make all` runs all cases."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import pytest


class CaseSample:
    """A sample of cases: the first of each kind, every n-th case, and further ones.

    Args:
        cases: All cases.
        get_kind: Returns the kind of a case.
        always: Cases that tests use without having them as parameters.
        stride: The distance between the cases of the sample.
    """

    def __init__(
        self,
        cases: Sequence[Any],
        get_kind: Callable[[Any], Hashable],
        always: Iterable[Any] = (),
        stride: int = 4,
    ) -> None:
        kinds = [get_kind(case) for case in cases]
        first_indices = {kinds.index(kind) for kind in kinds}
        self._cases = cases
        self._always = list(always)
        chosen = [
            case
            for index, case in enumerate(cases)
            if index in first_indices or index % stride == 0
        ]
        self._sample = chosen + self._always

    def make_params(self, cases: Iterable[Any]) -> list[Any]:
        """Return cases as parameters of tests, ``long`` unless they are in the sample."""
        long = pytest.mark.long
        return [pytest.param(case, marks=() if case in self._sample else long) for case in cases]

    def select_requested(self, request: pytest.FixtureRequest) -> list[Any]:
        """Return the cases that the selected tests of a fixture's file need."""
        requested = [
            value
            for test in request.session.items
            if test.path == request.path and isinstance(test, pytest.Function)
            for value in getattr(getattr(test, "callspec", None), "params", {}).values()
        ]
        return [case for case in self._cases if case in requested or case in self._always]
