"""Fault injection, ``--inject FAULT[@CASE]``: the run must detect the faults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spbench.errors import UsageError, did_you_mean
from spbench.suites.case import Case
from spbench_core.catalog import COMMON_FAULTS, parse_fault
from spbench_core.catalog.fault_effects import describe_fault

_MAX_CHECKS_NAMED = 2
_DETECTION_BY_FAULT = {
    "hang": "The time limit ends the case.",
    "kill": "The case ends with an error that names the rank.",
    "stop": "The case ends with an error that names the silent rank.",
    "raise": "The case ends with the exception.",
    "exit": "The case ends with an error that names the rank.",
    "slow": "The run names the slow rank.",
}
"""The way in which each of the common faults is detected."""


def list_faults(case: Case) -> tuple[str, ...]:
    """Return the faults that affect a case: its benchmark's, then common ones."""
    return (*case.entry.list_faults(dict(case.params)), *COMMON_FAULTS)


def list_effective_faults(case: Case) -> tuple[str, ...]:
    """Return the faults of `list_faults` that can change something in a case."""
    return (*case.entry.list_effective_faults(dict(case.params)), *COMMON_FAULTS)


def describe_fault_and_finder(case: Case, fault: str) -> str:
    """Return the effect of a fault in a case, and how it is found.

    A case with many checks gets no check named: any of them may fail.
    """
    if fault in COMMON_FAULTS:
        return f"{COMMON_FAULTS[fault]}. {_DETECTION_BY_FAULT[fault]}"
    checks = case.entry.list_checks(dict(case.params))
    effect = describe_fault(fault) or f"a fault of {case.entry.plugin or case.benchmark}"
    if not 1 <= len(checks) <= _MAX_CHECKS_NAMED:
        return effect
    noun = "The check" if len(checks) == 1 else "A check of"
    return f"{effect}. {noun} {' or '.join(checks)} fails."


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
