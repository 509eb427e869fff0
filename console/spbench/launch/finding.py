"""Something that was found on a machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingStatus(StrEnum):
    """The status of a finding, or of a host: that of its worst finding."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"
    UNREACHABLE = "unreachable"

    @property
    def is_well(self) -> bool:
        """Whether jobs can run."""
        return self in (FindingStatus.OK, FindingStatus.NOTE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: what there is, or what is missing and how to fix it."""

    status: FindingStatus
    subject: str
    text: str
    mend: str | None = None
