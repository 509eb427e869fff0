"""The conditions of runs that affect their comparison.

These are planted faults, noise, the machines, and how much earlier runs on them differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spbench.record.runs.case_durations import hash_work, parse_planted_faults
from spbench.record.runs.history import RunSummary
from spbench.record.runs.index import find_past_medians
from spbench.report.comparison.model import HEADLINE, RunConditions
from spbench.report.recorded import RecordedRun

PastLaunches = Callable[[str, str], Sequence[Sequence[float]]]
"""A function of case and metric that returns the launches of earlier runs, run by run."""


def find_conditions(run: RecordedRun) -> RunConditions:
    """Return the planted faults of a run, and its noisy and crowded cases."""
    cases = run.cases.values()
    return RunConditions(
        faults=find_faults(run.summary),
        noise={case.id: case.noisy for case in cases if case.noisy},
        crowded=frozenset(case.id for case in cases if case.crowded),
    )


def find_faults(summary: RunSummary) -> tuple[str, ...]:
    """Return the planted faults of a run, such as ``slow (case exchange)``.

    They are read from the run's folder, because ``run --failed`` repeats the faults of an earlier
    run. For a report without its folder, they are read from the command line in the report.
    """
    recorded_faults = _read_recorded_faults(summary)
    faults = recorded_faults if recorded_faults is not None else parse_planted_faults(summary.argv)
    return tuple(dict.fromkeys(map(_describe_fault, faults)))


def _read_recorded_faults(summary: RunSummary) -> list[str] | None:
    """Return the faults in run.json; None if there is no run.json of this run."""
    run = summary.folder.read_json("run.json")
    request: Any = run.get("request")
    if run.get("id") != summary.id or not isinstance(request, Mapping):
        return None
    faults = request.get("inject")
    return [str(fault) for fault in faults] if isinstance(faults, list) else None


def _describe_fault(fault: str) -> str:
    name, separator, case = fault.partition("@")
    return f"{name} (case {case})" if separator else name


def describe_machine_differences(a: RecordedRun, b: RecordedRun) -> str | None:
    """Return the differences between the machines of two runs; None if there are none.

    Facts that only one of the runs has are ignored: older runs have no fingerprint.
    """
    facts_a = a.fingerprint
    facts_b = b.fingerprint
    differences = [
        f"{name} {_format_fact(facts_a[name])} in a, {_format_fact(facts_b[name])} in b"
        for name in facts_a
        if name != "id" and name in facts_b and facts_a[name] != facts_b[name]
    ]
    return "; ".join(differences) or None


def _format_fact(fact: Any) -> str:
    return ", ".join(map(str, fact)) if isinstance(fact, list) and fact else str(fact or "unknown")


def no_past_launches(case: str, metric: str) -> Sequence[Sequence[float]]:
    """Return no launches, for comparisons without earlier runs."""
    return ()


def make_past_lookup(home: Path, a: RecordedRun, b: RecordedRun) -> PastLaunches:
    """Return the launches of other runs of a home on the machines of runs a and b.

    Runs that are newer than both do not count, so that a later comparison gives the same result.
    Only headline metrics have earlier launches, and only those of cases that did the same work as
    in a. There are none if the fingerprints of the two runs differ.
    """
    fingerprint = a.fingerprint.get("id")
    if not isinstance(fingerprint, str) or fingerprint != b.fingerprint.get("id"):
        return no_past_launches
    launches_by_case_and_work = find_past_medians(home, HEADLINE, fingerprint)
    compared_runs = {*(a.made_of or [a.summary.id]), *(b.made_of or [b.summary.id])}
    newest_run = max(compared_runs)  # ids begin with the time

    def select_launches(case: str, metric: str) -> Sequence[Sequence[float]]:
        work = _hash_case_work(a, case)
        if metric != HEADLINE or not work:
            return []
        launches_by_run = launches_by_case_and_work.get((case, work), {})
        return [
            launches
            for run, launches in launches_by_run.items()
            if run not in compared_runs and run < newest_run
        ]

    return select_launches


def _hash_case_work(run: RecordedRun, case: str) -> str | None:
    case_part = run.cases.get(case)
    if case_part is None:
        return None
    return hash_work(
        case_part.benchmark,
        case_part.version,
        case_part.np,
        case_part.params,
        run.summary.argv,
        case_part.id,
    )
