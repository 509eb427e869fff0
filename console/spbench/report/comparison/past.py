"""What earlier runs tell of how much runs of a case differ on the machines of two that compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from spbench.record.runs.case_work import hash_work
from spbench.record.runs.index import find_past_runs
from spbench.report.comparison.model import HEADLINE
from spbench.report.recorded import RecordedRun

PastLaunches = Callable[[str, str], Sequence[Sequence[float]]]
"""The launches of earlier runs, run by run, by case and metric."""


def no_past_launches(case: str, metric: str) -> Sequence[Sequence[float]]:
    """Return nothing: no earlier launches are known."""
    return ()


def find_past_launches(home: Path, a: RecordedRun, b: RecordedRun) -> PastLaunches:
    """Return the launches of other runs of a home on the same machines, for a comparison of two.

    Runs that are newer than both do not count, so that a comparison stays the same. Only headline
    metrics have a past, and only cases that did the same work as those of a. It is empty if the two
    runs have no fingerprint in common.
    """
    machines = {_machines(a), _machines(b)}
    machine = machines.pop()
    if machines or machine is None:
        return no_past_launches
    known = find_past_runs(home, HEADLINE, machine)
    compared = {*(a.made_of or [a.summary.id]), *(b.made_of or [b.summary.id])}
    newest = max(compared)  # ids begin with the time

    def past(case: str, metric: str) -> Sequence[Sequence[float]]:
        work = _work(a, case)
        runs = known.get((case, work), {}) if metric == HEADLINE and work else {}
        return [launches for run, launches in runs.items() if run not in compared and run < newest]

    return past


def _work(run: RecordedRun, case: str) -> str | None:
    part = run.cases.get(case)
    if part is None:
        return None
    about = (part.benchmark, part.version, part.np, part.params)
    return hash_work(*about, run.summary.argv, part.id)


def _machines(run: RecordedRun) -> str | None:
    found = run.environment.get("fingerprint")
    told = found.get("id") if isinstance(found, dict) else None
    return told if isinstance(told, str) else None
