"""The times of a run's cases in an earlier run of the suite."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spbench.record.case_parts import CaseIdentity
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import RunSummary, update_known_runs
from spbench.report.recorded import RecordedRun, load_run
from spbench_core.events.statuses import RunStatus


@dataclass(frozen=True, slots=True)
class PreviousTime:
    """The time of a case in an earlier run.

    Attributes:
        time_ms: Its time in ms.
        disturbed: Whether it was disturbed by other work or by more ranks than cores.
    """

    time_ms: float
    disturbed: bool


def list_previous_times(
    run: RecordedRun, identities: Iterable[CaseIdentity]
) -> dict[str, PreviousTime]:
    """Return the times of cases in an earlier run, by id.

    Cases with another benchmark, other parameters or another number of ranks are left out.
    """
    times = {}
    for identity in identities:
        case = run.cases.get(identity.id)
        if case is None or "time_ms" not in case.metrics:
            continue
        work = (case.benchmark, case.version, case.np, case.params)
        if work == (identity.benchmark, identity.version, identity.np, dict(identity.params)):
            times[identity.id] = PreviousTime(case.metrics["time_ms"].value, case.disturbed)
    return times


def load_previous_run(home: Path, folder: RunFolder, *, keep: bool = True) -> RecordedRun | None:
    """Load the previous run of the suite of a run; None if no earlier run has ended.

    Args:
        home: The folder of the runs.
        folder: The run.
        keep: Whether missing runs may be added to the index of runs.

    Raises:
        UsageError: It has no report, and its event log cannot be read.
    """
    runs = [summary for _, summary in reversed(update_known_runs(home, keep=keep).values())]
    run = next((summary for summary in runs if summary.id == folder.id), None)
    previous = None if run is None else find_previous_run(runs, run)
    return None if previous is None else load_run(previous.folder)


def find_previous_run(runs: list[RunSummary], run: RunSummary) -> RunSummary | None:
    """Return the previous ended run of the same suite; ``runs`` has the newest first."""
    run_ids = [other.id for other in runs]
    older_runs = runs[run_ids.index(run.id) + 1 :] if run.id in run_ids else []
    same_suite = (other for other in older_runs if other.suite == run.suite)
    return next((other for other in same_suite if other.status != RunStatus.RUNNING), None)
