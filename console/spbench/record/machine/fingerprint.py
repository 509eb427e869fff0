"""The fingerprint of the machines of a run: figures of two runs compare where theirs are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LENGTH = 12


@dataclass(slots=True)
class MachinesSeen:
    """What the ranks of a run have said of their hosts, each thing once."""

    parts: dict[str, set[str | int]] = field(default_factory=dict)

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in a rank's ``ready``; what it does not say is left out."""
        versions = event["versions"]
        told = {
            "hosts": event.get("host"),
            "processors": event.get("processor"),
            "cores": event.get("host_cpus"),
            "mpi": versions.get("mpi"),
            "torch": versions.get("torch"),
        }
        for name, value in told.items():
            if isinstance(value, (str, int)):
                self.parts.setdefault(name, set()).add(value)

    def fingerprint(self) -> dict[str, Any] | None:
        """Return the parts, sorted, and their hash as ``id``; None where no rank has spoken.

        ``cores`` are the CPUs of a host, ``hosts`` the names that ranks gave them.
        """
        if not self.parts:
            return None
        parts = {
            name: sorted(self.parts.get(name, ()), key=lambda value: (str(type(value)), value))
            for name in ("hosts", "processors", "cores", "mpi", "torch")
        }
        text = json.dumps(parts, sort_keys=True)
        return {"id": hashlib.sha256(text.encode()).hexdigest()[:LENGTH], **parts}
