"""A recorded run with its cases' results: from its report, or from its events without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spbench.errors import UsageError
from spbench.record.runs.files import has_commands, read_file, read_json
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import RUNNING, RunSummary, summary_of
from spbench.report.build import case_parts, settled
from spbench.report.model import CasePart, Report


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run and its cases by id, in the suite's order.

    A case of a run that still goes on may be ``waiting`` or ``running``. ``left_out`` is the
    sentence on what of its log could not be read.
    """

    summary: RunSummary
    cases: Mapping[str, CasePart]
    findings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    left_out: str | None = None


def load_run(folder: RunFolder) -> RecordedRun:
    """Return what a run measured: from report.json, else by replay of its events.

    Raises:
        UsageError: It has no report, and its event log cannot be read.
    """
    summary, left_out = summary_of(folder), None
    report = read_report(folder)
    if report is not None:
        cases, findings, errors = report.cases, report.run.findings, report.errors
    else:
        state = folder.replay()
        if state.run is None and folder.report.exists():
            raise UsageError(
                f"run {summary.id}: its report is damaged, and {folder.events} is empty"
            )
        cases, findings, errors = case_parts(state), state.findings, state.errors
        left_out = state.left_out
        if summary.verdict != RUNNING:
            cases = [settled(case) for case in cases]
    by_id = {case.id: case for case in cases}
    return RecordedRun(summary, by_id, tuple(findings), tuple(errors), left_out)


def read_report(folder: RunFolder) -> Report | None:
    """Return the report of a run; None where there is none, or it is damaged."""
    try:
        text = read_file(folder.report)
        if has_commands(text):
            return Report.model_validate(read_json(folder.report))
        return Report.model_validate_json(text)
    except (OSError, ValueError):
        return None
