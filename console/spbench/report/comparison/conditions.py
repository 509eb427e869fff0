"""Find the conditions of a run that a reader of a comparison must know of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spbench.record.runs.case_work import parse_planted_faults
from spbench.record.runs.history import RunSummary
from spbench.report.comparison.model import RunConditions
from spbench.report.recorded import RecordedRun


def find_conditions(run: RecordedRun) -> RunConditions:
    """Return the planted faults of a run, and what its cases need next to their metrics."""
    cases = run.cases.values()
    return RunConditions(
        faults=find_faults(run.summary),
        noise={case.id: case.noisy for case in cases if case.noisy},
        crowded=frozenset(case.id for case in cases if case.crowded),
    )


def find_faults(summary: RunSummary) -> tuple[str, ...]:
    """Return the planted faults of a run, such as ``slow (case exchange)``.

    They are read from the run's folder, since ``run --failed`` plants those of an earlier run
    again. A report file without its folder has the command line only.
    """
    recorded = _requested(summary)
    faults = recorded if recorded is not None else parse_planted_faults(summary.argv)
    return tuple(dict.fromkeys(map(_describe, faults)))


def _requested(summary: RunSummary) -> list[str] | None:
    """Return the faults that run.json has; None without a run.json of this run."""
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
