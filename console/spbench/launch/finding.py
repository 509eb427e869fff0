"""A finding about a machine: a fact, or a defect with its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingStatus(StrEnum):
    """The status of a finding; a host has that of its worst finding."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"
    UNREACHABLE = "unreachable"

    @property
    def is_fit(self) -> bool:
        """Whether jobs can run."""
        return self in (FindingStatus.OK, FindingStatus.NOTE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding.

    Attributes:
        subject: The checked part of the machine, such as ``driver``.
        text: The fact, or the defect.
        remedy: How to fix the defect; None if the finding is only a fact.
    """

    status: FindingStatus
    subject: str
    text: str
    remedy: str | None = None

    @property
    def title(self) -> str:
        """The text after its subject, which is not repeated: ``load 12.5 on 2 cores``."""
        is_in_text = self.text.split(" ")[0] == self.subject
        return self.text if is_in_text else f"{self.subject}: {self.text}"

    def to_json(self) -> dict[str, str | None]:
        """Return the finding as ``spbench doctor --json`` prints it."""
        return {
            "status": self.status,
            "subject": self.subject,
            "text": self.text,
            "mend": self.remedy,
        }
