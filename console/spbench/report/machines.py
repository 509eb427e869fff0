"""The machines of two runs: figures compare where their fingerprints are equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spbench.report.recorded import RecordedRun


def unlike(a: RecordedRun, b: RecordedRun) -> str | None:
    """Return what differs between the machines of two runs, or None.

    What a run does not tell is left out: older records have no fingerprint.
    """
    mine = _parts(a)
    others = _parts(b)
    told = [
        f"{name} {_words(mine[name])} in a, {_words(others[name])} in b"
        for name in mine
        if name != "id" and name in others and mine[name] != others[name]
    ]
    return "; ".join(told) or None


def _parts(run: RecordedRun) -> Mapping[str, Any]:
    found = run.environment.get("fingerprint")
    return found if isinstance(found, Mapping) else {}


def _words(part: Any) -> str:
    return ", ".join(map(str, part)) if isinstance(part, list) and part else str(part or "unknown")
