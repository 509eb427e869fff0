"""The fingerprint of a run's machines, from the facts that its ranks report."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from spbench_core.events.rank_events import RankFacts

FINGERPRINT_LENGTH = 12
"""The number of hexadecimal digits of a fingerprint."""


@dataclass(slots=True)
class MachineParts:
    """The facts about machines that ranks of a run have reported, without duplicates."""

    parts: dict[str, set[str | int]] = field(default_factory=dict)

    def add(self, facts: RankFacts) -> None:
        """Add the known facts of a rank."""
        facts_by_name = {
            "hosts": facts.host,
            "processors": facts.processor,
            "cores": facts.host_cpus,
            "mpi": facts.versions.get("mpi"),
            "torch": facts.versions.get("torch"),
        }
        for name, fact in facts_by_name.items():
            if isinstance(fact, (str, int)):
                self.parts.setdefault(name, set()).add(fact)

    def fingerprint(self) -> dict[str, Any] | None:
        """Return the sorted parts with their hash as ``id``; None without parts.

        Results of two runs are comparable if their fingerprints are equal. ``cores`` are the
        numbers of CPUs of hosts, ``hosts`` the names that ranks reported.
        """
        if not self.parts:
            return None
        parts = {
            name: sorted(self.parts.get(name, ()), key=lambda part: (str(type(part)), part))
            for name in ("hosts", "processors", "cores", "mpi", "torch")
        }
        text = json.dumps(parts, sort_keys=True)
        return {"id": hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_LENGTH], **parts}
