"""References of systems: which one applies to a run, and the bounds that follow from it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from spbench.suites.case import Case, Expectation, PerformanceReference


def depends_on_system(cases: Iterable[Case]) -> bool:
    """Return whether an expectation of a case has a reference for each system."""
    return any(item.systems is not None for case in cases for item in case.expect)


def choose_references(cases: Sequence[Case], system: str) -> tuple[Case, ...]:
    """Return the cases with the bounds of one system.

    An expectation without a reference for the system is kept, with the reason why it is skipped.
    """
    return tuple(
        replace(case, expect=tuple(_choose(case.expect, system))) if case.expect else case
        for case in cases
    )


def _choose(expect: Iterable[Expectation], system: str) -> Iterator[Expectation]:
    for item in expect:
        if item.systems is None:
            yield item
        elif system in item.systems:
            yield from derive_bounds(item.metric, item.systems[system])
        else:
            known = ", ".join(item.systems)
            skipped = f"no reference for system {system} (suite has {known})"
            yield replace(item, systems=None, skipped=skipped)


def derive_bounds(metric: str, reference: PerformanceReference) -> list[Expectation]:
    """Return the bounds that a reference puts on a metric: the greatest value, the least, or both.

    A bound is exact in decimal digits: 0.7 with 10 % is 0.77, so that a result of 0.77 passes.
    """
    bounds = []
    if reference.upper is not None:
        most = _deviate(reference.value, reference.upper)
        bounds.append(Expectation(metric, "max", most, reference=reference))
    if reference.lower is not None:
        least = _deviate(reference.value, reference.lower)
        bounds.append(Expectation(metric, "min", least, reference=reference))
    return bounds


def _deviate(value: float, share: float) -> float:
    bound = float(Decimal(repr(value)) * (1 + Decimal(repr(share))))
    return min(bound, sys.float_info.max)
