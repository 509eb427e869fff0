"""The words in a case's reason for the outcome of its planted fault."""

from __future__ import annotations

from enum import StrEnum

FAULT = "planted fault"
FAULT_NOTICED = f"{FAULT} noticed"
FAULT_MISSED = f"nothing noticed the {FAULT}"
_NOTICED = " noticed"


class FaultOutcome(StrEnum):
    """The status of a failed case with a planted fault, in tables and texts."""

    NOTICED = "fault noticed"
    MISSED = "fault missed"


def add_noticed_fault(failure: str, fault: str | None) -> str:
    """Return a failed check or expectation, with the planted fault it noticed."""
    return failure if fault is None else f"{failure}; {FAULT} {fault}{_NOTICED}"


def blames_fault(reason: str | None) -> bool:
    """Whether a case's reason is only a planted fault."""
    return reason is not None and reason.startswith((FAULT, FAULT_MISSED))


def find_fault_outcome(reason: str | None) -> FaultOutcome | None:
    """Return the outcome of the planted fault of a case; None without a fault."""
    if reason is None:
        return None
    failure, _, fault = reason.rpartition(f"; {FAULT} ")
    if reason.startswith(FAULT_NOTICED) or (failure and fault.endswith(_NOTICED)):
        return FaultOutcome.NOTICED
    return FaultOutcome.MISSED if blames_fault(reason) else None
