"""A line of what was found on a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's: what there is, or what is missing and how to mend it."""

    status: Literal["ok", "note", "missing"]
    subject: str
    text: str
    mend: str | None = None
