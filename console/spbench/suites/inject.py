"""``--inject FAULT[@CASE]``: plants a fault in cases, which the run must then find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spbench.errors import UsageError, did_you_mean
from spbench.suites.case import Case
from spbench_core.catalog import COMMON_FAULTS, fault_of


def faults_of(case: Case) -> tuple[str, ...]:
    """Return the faults that change anything in a case: its benchmark's own, then the common."""
    return (*case.entry.faults_of(dict(case.params)), *COMMON_FAULTS)


def plant(cases: Sequence[Case], text: str) -> tuple[Case, ...]:
    """Return the cases with a fault planted in each that knows it, or in the one CASE named.

    Args:
        cases: The selected cases.
        text: ``FAULT`` or ``FAULT@CASE``, where CASE is a case's id or name; ``slow`` may have
            a factor.

    Raises:
        UsageError: No selected case is called CASE, or none of them knows the fault.
    """
    fault, at, target = text.partition("@")
    try:
        name, _ = fault_of(fault)
    except ValueError as error:
        raise UsageError(f"--inject {text}: {error}") from None
    chosen = {case.id for case in cases if not at or target in (case.id, case.name)}
    if not chosen and at:
        words = dict.fromkeys(word for case in cases for word in (case.id, case.name))
        near = did_you_mean(target, words)
        raise UsageError(f"--inject {text}: no selected case is called {target!r}{near}")
    planted = tuple(
        replace(case, inject=fault) if case.id in chosen and name in faults_of(case) else case
        for case in cases
    )
    if not any(case.inject == fault for case in planted if case.id in chosen):
        raise UsageError(_unknown(text, name, [case for case in cases if case.id in chosen]))
    return planted


def _unknown(text: str, fault: str, cases: Iterable[Case]) -> str:
    known = list(dict.fromkeys(name for case in cases for name in faults_of(case)))
    near = did_you_mean(fault, known)
    return f"--inject {text}: no selected case knows {fault!r}; they know {', '.join(known)}{near}"
