"""The problems of a run's cases: failures, slow ranks and slow links."""

from __future__ import annotations

import re
from typing import NamedTuple

from spbench.record.case_state import CaseState
from spbench.record.findings import has_unplanted_straggler, names_slow_part
from spbench.record.planted_faults import FaultOutcome, find_fault_outcome, names_found_rank
from spbench.record.state import RunState
from spbench.record.stragglers import Straggler
from spbench.tui.run.rank_source import find_failed_ranks
from spbench_core.events.statuses import CaseStatus

_RANK = re.compile(r"\brank (\d+) on ")


class LocatedProblem(NamedTuple):
    """A case and its failed or slow rank; None if no single rank failed."""

    case: str
    rank: int | None


class SlowCases:
    """The cases with a slow rank that no fault slowed down, or with a slow link.

    Slow links are known from the recorded findings, so that marks and findings agree.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._findings: list[str] = []
        self._link_cases: frozenset[str] = frozenset()

    def update(self) -> None:
        """Read the findings if they have changed."""
        findings = self._state.findings
        if findings != self._findings:
            self._findings = findings
            problems = list_link_problems(self._state)
            self._link_cases = frozenset(problem.case for problem in problems)

    def includes(self, case: CaseState) -> bool:
        """Return whether a case has a slow part."""
        return case.id in self._link_cases or has_unplanted_straggler(case)


def list_link_problems(state: RunState) -> list[LocatedProblem]:
    """Return the slow links of the recorded findings, each with its first rank."""
    link_cases = [case for case in state.cases.values() if case.identity.measures == "link"]
    return [
        LocatedProblem(case.id, int(match[1]) if match else None)
        for message in filter(names_slow_part, state.findings)
        for match in [_RANK.search(message)]
        for case in link_cases
        if re.search(rf" in {re.escape(case.id)}(?: \(|;|,|$)", message)
    ]


def find_severity(case: CaseState) -> int:
    """Return the sort key of a bad case: wrong values come before slow ranks."""
    if find_fault_outcome(case.execution.reason) is FaultOutcome.FOUND:
        return 3 if names_found_rank(case.execution.reason) else 2
    return 0 if case.status.is_broken else 1


def find_largest_ratio(case: CaseState) -> float:
    """Return the ratio of the slowest straggler of a case with stragglers."""
    return max(straggler.ratio for straggler in case.execution.stragglers)


def has_problem(case: CaseState) -> bool:
    """Return whether a case failed, also so far, or has a slow rank."""
    if case.status == CaseStatus.RUNNING:
        return not all(case.measured.passed_by_rank.values())
    return case.status.is_bad or bool(case.execution.stragglers)


def list_problem_ranks(case: CaseState) -> list[int | None]:
    """Return the failed and slow ranks of a case; only None if it failed without one."""
    if not has_problem(case):
        return []
    slow_ranks = {_find_rank(case, straggler) for straggler in case.execution.stragglers}
    ranks = find_failed_ranks(case) | {rank for rank in slow_ranks if rank is not None}
    return [*sorted(ranks)] or [None]


def _find_rank(case: CaseState, straggler: Straggler) -> int | None:
    """Return a slow rank, or the first rank of a slow host."""
    if straggler.rank is not None:
        return straggler.rank
    ranks = case.measured.ranks.items()
    return min((rank for rank, state in ranks if state.host == straggler.host), default=None)
