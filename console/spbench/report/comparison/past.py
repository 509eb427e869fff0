"""Launches of earlier runs, which show how much runs differ on the same machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from spbench.record.runs.case_durations import hash_work
from spbench.record.runs.index import find_past_runs
from spbench.report.comparison.model import HEADLINE
from spbench.report.recorded import RecordedRun

PastLaunches = Callable[[str, str], Sequence[Sequence[float]]]
"""A function of case and metric that returns the launches of earlier runs, run by run."""


def no_past_launches(case: str, metric: str) -> Sequence[Sequence[float]]:
    """Return no launches, for comparisons without earlier runs."""
    return ()


def find_past_launches(home: Path, a: RecordedRun, b: RecordedRun) -> PastLaunches:
    """Return the launches of other runs of a home on the machines of runs a and b.

    Runs that are newer than both do not count, so that a later comparison gives the same result.
    Only headline metrics have earlier launches, and only those of cases that did the same work as
    in a. There are none if the fingerprints of the two runs differ.
    """
    fingerprint = _fingerprint_id(a)
    if fingerprint is None or fingerprint != _fingerprint_id(b):
        return no_past_launches
    runs_by_work = find_past_runs(home, HEADLINE, fingerprint)
    compared = {*(a.made_of or [a.summary.id]), *(b.made_of or [b.summary.id])}
    newest = max(compared)  # ids begin with the time

    def select_launches(case: str, metric: str) -> Sequence[Sequence[float]]:
        work = _work_id(a, case)
        if metric != HEADLINE or not work:
            return []
        runs = runs_by_work.get((case, work), {})
        return [launches for run, launches in runs.items() if run not in compared and run < newest]

    return select_launches


def _work_id(run: RecordedRun, case: str) -> str | None:
    part = run.cases.get(case)
    if part is None:
        return None
    return hash_work(part.benchmark, part.version, part.np, part.params, run.summary.argv, part.id)


def _fingerprint_id(run: RecordedRun) -> str | None:
    fingerprint = run.environment.get("fingerprint")
    id_ = fingerprint.get("id") if isinstance(fingerprint, dict) else None
    return id_ if isinstance(id_, str) else None
