"""Figures of cases that take time, computed in threads and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from spbench.record.case_state import CaseState
from spbench_core.events.statuses import CaseStatus

LIVE_INTERVAL = 5.0
"""Time between two computations for a running case, in seconds."""
MAX_LIVE_RANKS = 64
"""Most ranks of a running case for which figures are computed."""
Figures = TypeVar("Figures")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Figures]):
    """Figures of a case, with its state, and the status and time of their computation."""

    case: CaseState
    status: CaseStatus
    computed_at: float
    figures: Figures


class CaseComputation(Generic[Figures]):
    """A function of cases, computed once for each finished one.

    A retry or a resumed run replaces the state of a case, so that it is computed again.

    Args:
        compute: The function, which is called in a thread.
        is_live: Whether it is also computed for a running case, every few seconds.
    """

    def __init__(self, compute: Callable[[CaseState], Figures], *, is_live: bool) -> None:
        self._compute = compute
        self._is_live = is_live
        self._entries: dict[str, _Entry[Figures]] = {}

    def get(self, case: CaseState) -> Figures | None:
        """Return the figures of a case; None if they are not computed."""
        entry = self._find_entry(case)
        return None if entry is None else entry.figures

    def find_pending(self, cases: Iterable[CaseState]) -> CaseState | None:
        """Return a case that has to be computed; None if no case is pending."""
        return next((case for case in cases if self._is_pending(case)), None)

    async def compute(self, case: CaseState) -> None:
        """Compute the figures of a case."""
        status = case.status
        try:
            figures = await asyncio.to_thread(self._compute, case)
        except RuntimeError:  # an event changed the samples at the same time
            return
        self._entries[case.id] = _Entry(case, status, monotonic(), figures)

    def _find_entry(self, case: CaseState) -> _Entry[Figures] | None:
        entry = self._entries.get(case.id)
        return entry if entry is not None and entry.case is case else None

    def _is_pending(self, case: CaseState) -> bool:
        entry = self._find_entry(case)
        if case.status.is_final:
            return entry is None or entry.status != case.status
        if not self._is_live or case.status != CaseStatus.RUNNING:
            return False
        if case.identity.np > MAX_LIVE_RANKS:
            return False
        return entry is None or monotonic() - entry.computed_at >= LIVE_INTERVAL
