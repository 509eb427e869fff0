"""The words in a case's reason for the outcome of its planted fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from spbench_core.events.statuses import CaseStatus, RunStatus
from spbench_core.number_text import format_quantity

FAULT = "planted fault"
FAULT_FOUND = "fault found, as planted"
FAULT_MISSED = f"nothing noticed the {FAULT}"
_FAILED_RUN = (RunStatus.FAILED, RunStatus.ERROR, RunStatus.TIMEOUT)
_FOUND_BEFORE = f"{FAULT} noticed"
"""The words of older versions for a fault that was found."""


class FaultOutcome(StrEnum):
    """The status of a failed case with a planted fault, in tables and texts."""

    FOUND = "fault found"
    MISSED = "fault missed"


def format_result_count(count: int, result: str) -> str:
    """Return ``2 passed``, or ``2 faults found`` for the outcome of a planted fault."""
    return format_quantity(count, result, result.replace("fault ", "faults "))


def add_found_fault(failure: str, fault: str | None) -> str:
    """Return a failed check or expectation, with the planted fault that it found."""
    return failure if fault is None else f"{failure}; {FAULT_FOUND}: {fault}"


def names_found_rank(reason: str | None) -> bool:
    """Whether a case's reason is only that its planted slow rank was found."""
    return reason is not None and reason.startswith((FAULT_FOUND, _FOUND_BEFORE))


def blames_fault(reason: str | None) -> bool:
    """Whether a case's reason is only a planted fault."""
    return reason is not None and reason.startswith((FAULT, FAULT_FOUND, FAULT_MISSED))


def find_fault_outcome(reason: str | None) -> FaultOutcome | None:
    """Return the outcome of the planted fault of a case; None without a fault."""
    if reason is None:
        return None
    failure, _, fault = reason.rpartition(f"; {FAULT} ")
    was_found = f"; {FAULT_FOUND}: " in reason or (failure and fault.endswith(" noticed"))
    if names_found_rank(reason) or was_found:
        return FaultOutcome.FOUND
    return FaultOutcome.MISSED if blames_fault(reason) else None


def find_run_outcome(
    status: RunStatus, cases: Iterable[tuple[CaseStatus, str | None]], errors: Sequence[str]
) -> FaultOutcome | None:
    """Return FOUND if a run failed only because its planted faults were found.

    Args:
        status: The status of the run.
        cases: The statuses and reasons of its cases.
        errors: Its errors, which no planted fault causes.
    """
    if errors or status not in _FAILED_RUN:
        return None
    reasons = (reason for case_status, reason in cases if case_status != CaseStatus.PASSED)
    is_found = {find_fault_outcome(reason) for reason in reasons} == {FaultOutcome.FOUND}
    return FaultOutcome.FOUND if is_found else None
