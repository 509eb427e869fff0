"""Deadlines of a case: when its time begins anew, as ranks tell how far they are.

The timed part, warm-up included, has the case's timeout from its beginning on. What comes before
and after it, checks and baselines, has as much from each sign of progress to the next: it may take
longer than what is measured, and a rank that gets on is not to be ended.
"""

from __future__ import annotations

from spbench_core.events.statuses import TIMED

PhaseProgress = tuple[str, int]
"""A phase, and what is done of it."""


def restarts_deadline(before: PhaseProgress | None, now: PhaseProgress) -> bool:
    """Return whether a rank's deadline begins anew where it gets from one standing to another."""
    if now[0] in TIMED:
        return before is None or before[0] not in TIMED
    return before != now
