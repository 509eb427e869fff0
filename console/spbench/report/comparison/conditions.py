"""The conditions of runs that affect their comparison: faults, noise, machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spbench.record.runs.case_durations import parse_planted_faults
from spbench.record.runs.history import RunSummary
from spbench.report.comparison.model import RunConditions
from spbench.report.recorded import RecordedRun


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
    recorded = _read_recorded_faults(summary)
    faults = recorded if recorded is not None else parse_planted_faults(summary.argv)
    return tuple(dict.fromkeys(map(_describe, faults)))


def _read_recorded_faults(summary: RunSummary) -> list[str] | None:
    """Return the faults in run.json; None if there is no run.json of this run."""
    run = summary.folder.read_json("run.json")
    request: Any = run.get("request")
    if run.get("id") != summary.id or not isinstance(request, Mapping):
        return None
    faults = request.get("inject")
    return [str(fault) for fault in faults] if isinstance(faults, list) else None


def _describe(fault: str) -> str:
    name, separator, case = fault.partition("@")
    return f"{name} (case {case})" if separator else name


def describe_machine_differences(a: RecordedRun, b: RecordedRun) -> str | None:
    """Return the differences between the machines of two runs; None if there are none.

    Facts that only one of the runs has are ignored: older runs have no fingerprint.
    """
    facts_a = _fingerprint(a)
    facts_b = _fingerprint(b)
    differences = [
        f"{name} {_format_fact(facts_a[name])} in a, {_format_fact(facts_b[name])} in b"
        for name in facts_a
        if name != "id" and name in facts_b and facts_a[name] != facts_b[name]
    ]
    return "; ".join(differences) or None


def _fingerprint(run: RecordedRun) -> Mapping[str, Any]:
    facts = run.environment.get("fingerprint")
    return facts if isinstance(facts, Mapping) else {}


def _format_fact(fact: Any) -> str:
    return ", ".join(map(str, fact)) if isinstance(fact, list) and fact else str(fact or "unknown")
