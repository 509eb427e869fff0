"""The fingerprint of a run's machines, from the facts that its ranks report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spbench_core.events.rank_events import RankFacts

FINGERPRINT_LENGTH = 12
"""The number of hexadecimal digits of a fingerprint."""
_HARDWARE = ("hosts", "processors", "cores")
_VERSIONS = ("mpi", "torch")


class ComparedMachine(NamedTuple):
    """Hashes of the hardware and of the library versions of a run."""

    hardware: str
    versions: str


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
        return {"id": _hash_parts(parts), **parts}


def condense_fingerprint(fingerprint: Any) -> ComparedMachine | None:
    """Return the two hashes of a fingerprint; None if it has other content.

    The condensed form in the index, a list of the two hashes, gives the same result.
    """
    if isinstance(fingerprint, list) and len(fingerprint) == len(ComparedMachine._fields):
        return ComparedMachine(*map(str, fingerprint))
    if not isinstance(fingerprint, Mapping) or not isinstance(fingerprint.get("id"), str):
        return None
    hardware, versions = (
        _hash_parts({name: fingerprint.get(name) for name in names})
        for names in (_HARDWARE, _VERSIONS)
    )
    return ComparedMachine(hardware, versions)


def _hash_parts(parts: Mapping[str, Any]) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_LENGTH]
