"""The cases of a run in numbers: how many there are, ran, and passed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spbench.record.case_state import CaseState
from spbench_core.events.statuses import CaseStatus


@dataclass(frozen=True, slots=True)
class CaseCounts:
    """Numbers of cases.

    Attributes:
        total: All of the run.
        ran: Those that ran to a verdict.
        passed: Those that passed.
        idle: Those that have no verdict, and of which no rank has begun.
    """

    total: int
    ran: int
    passed: int
    idle: int

    def describe(self, ended: bool) -> str:
        """Return ``3/4 cases``, or of a run that has ended ``3/4 passed, 1 did not run``."""
        if not ended:
            return f"{self.ran}/{self.total} cases"
        left = f", {self.idle} did not run" if self.idle else ""
        return f"{self.passed}/{self.total} passed{left}"


def count_cases(cases: Iterable[CaseState]) -> CaseCounts:
    """Count the cases of a run."""
    known = list(cases)
    unjudged = [case for case in known if not case.status.has_result]
    return CaseCounts(
        len(known),
        len(known) - len(unjudged),
        sum(case.status == CaseStatus.PASSED for case in known),
        sum(case.verdict.started is None for case in unjudged),
    )
