"""Fault injection, ``--inject FAULT[@CASE]``: the run must detect the faults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spbench.errors import UsageError, did_you_mean
from spbench.suites.case import Case
from spbench_core.catalog import COMMON_FAULTS, parse_fault


def list_faults(case: Case) -> tuple[str, ...]:
    """Return the faults that affect a case: its benchmark's, then common ones."""
    return (*case.entry.list_faults(dict(case.params)), *COMMON_FAULTS)


def inject_faults(cases: Sequence[Case], texts: Iterable[str]) -> tuple[Case, ...]:
    """Return the cases with several faults planted, one in each case at most.

    Raises:
        UsageError: As `inject_fault` does, or a case would have two faults.
    """
    faulty_cases = tuple(cases)
    for text in texts:
        faulty_cases = inject_fault(faulty_cases, text)
    return faulty_cases


def inject_fault(cases: Sequence[Case], text: str) -> tuple[Case, ...]:
    """Return the cases with a fault in each that supports it, or only in CASE.

    Args:
        cases: The selected cases.
        text: ``FAULT`` or ``FAULT@CASE``, where CASE is a case's id or name; ``slow`` may have
            a factor.

    Raises:
        UsageError: No selected case has the name CASE, no case supports the fault, or a case has
            a fault already.
    """
    fault, separator, target = text.partition("@")
    try:
        name, _ = parse_fault(fault)
    except ValueError as error:
        raise UsageError(f"--inject {text}: {error}") from None
    target_cases = [case for case in cases if not separator or target in (case.id, case.name)]
    if not target_cases and separator:
        known_names = dict.fromkeys(name for case in cases for name in (case.id, case.name))
        hint = did_you_mean(target, known_names)
        raise UsageError(f"--inject {text}: no selected case is called {target!r}{hint}")
    affected_ids = {case.id for case in target_cases if name in list_faults(case)}
    if not affected_ids:
        raise UsageError(_describe_unknown(text, name, target_cases))
    for case in cases:
        if case.id in affected_ids and case.inject is not None:
            raise UsageError(
                f"--inject {text}: case {case.id} has the fault {case.inject} already, and takes "
                "one; name other cases with FAULT@CASE, or start a second run"
            )
    return tuple(replace(case, inject=fault) if case.id in affected_ids else case for case in cases)


def _describe_unknown(text: str, fault: str, cases: Iterable[Case]) -> str:
    faults = list(dict.fromkeys(name for case in cases for name in list_faults(case)))
    hint = did_you_mean(fault, faults)
    return f"--inject {text}: no selected case knows {fault!r}; they know {', '.join(faults)}{hint}"
