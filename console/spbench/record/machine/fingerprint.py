"""The fingerprint of the machines of a run: figures of two runs compare where theirs are equal."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from spbench_core.events.rank_facts import RankFacts

LENGTH = 12


@dataclass(slots=True)
class MachineParts:
    """What the ranks of a run have said of their hosts, each thing once."""

    parts: dict[str, set[str | int]] = field(default_factory=dict)

    def add(self, facts: RankFacts) -> None:
        """Take in the facts of a rank, as far as they are known."""
        told = {
            "hosts": facts.host,
            "processors": facts.processor,
            "cores": facts.host_cpus,
            "mpi": facts.versions.get("mpi"),
            "torch": facts.versions.get("torch"),
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
