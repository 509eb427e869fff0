"""``--inject FAULT[@CASE]``: plants faults in cases, which the run must then find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spbench.errors import UsageError, did_you_mean
from spbench.suites.case import Case
from spbench_core.catalog import COMMON_FAULTS, parse_fault


def list_faults(case: Case) -> tuple[str, ...]:
    """Return the faults that change anything in a case: its benchmark's own, then the common."""
    return (*case.entry.list_faults(dict(case.params)), *COMMON_FAULTS)


def inject_faults(cases: Sequence[Case], texts: Iterable[str]) -> tuple[Case, ...]:
    """Return the cases with several faults planted, one in each case at most.

    Raises:
        UsageError: As `plant` does, or a case would have two faults.
    """
    planted = tuple(cases)
    for text in texts:
        planted = inject_fault(planted, text)
    return planted


def inject_fault(cases: Sequence[Case], text: str) -> tuple[Case, ...]:
    """Return the cases with a fault planted in each that knows it, or in the one CASE named.

    Args:
        cases: The selected cases.
        text: ``FAULT`` or ``FAULT@CASE``, where CASE is a case's id or name; ``slow`` may have
            a factor.

    Raises:
        UsageError: No selected case is called CASE, none of them knows the fault, or one that does
            has a fault already.
    """
    fault, at, target = text.partition("@")
    try:
        name, _ = parse_fault(fault)
    except ValueError as error:
        raise UsageError(f"--inject {text}: {error}") from None
    chosen = {case.id for case in cases if not at or target in (case.id, case.name)}
    if not chosen and at:
        words = dict.fromkeys(word for case in cases for word in (case.id, case.name))
        near = did_you_mean(target, words)
        raise UsageError(f"--inject {text}: no selected case is called {target!r}{near}")
    spoilt = {case.id for case in cases if case.id in chosen and name in list_faults(case)}
    if not spoilt:
        raise UsageError(_unknown(text, name, [case for case in cases if case.id in chosen]))
    for case in cases:
        if case.id in spoilt and case.inject is not None:
            raise UsageError(
                f"--inject {text}: case {case.id} has the fault {case.inject} already, and takes "
                "one; name other cases with FAULT@CASE, or start a second run"
            )
    return tuple(replace(case, inject=fault) if case.id in spoilt else case for case in cases)


def _unknown(text: str, fault: str, cases: Iterable[Case]) -> str:
    known = list(dict.fromkeys(name for case in cases for name in list_faults(case)))
    near = did_you_mean(fault, known)
    return f"--inject {text}: no selected case knows {fault!r}; they know {', '.join(known)}{near}"
