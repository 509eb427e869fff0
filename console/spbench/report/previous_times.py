"""The times of a run's cases in an earlier run of its suite."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from spbench.errors import SpbenchError
from spbench.record.case_parts import CaseIdentity
from spbench.record.runs.case_names import count_launches_of_run
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import RunSummary, update_known_runs
from spbench.report.recorded import RecordedRun, load_run
from spbench_core.events.statuses import RunStatus

MAX_LOADED = 20
"""The most runs that are loaded for their cases, because the index of runs lacks them."""
MAX_SEARCHED = 50
"""The most runs that are searched for one with all cases and enough launches, after the newest."""
_TIME = "time_ms"
_STATUSES_WITHOUT_END = frozenset(
    {RunStatus.CANCELLED, RunStatus.UNFINISHED, RunStatus.ERROR, RunStatus.TIMEOUT}
)


@dataclass(frozen=True, slots=True)
class PreviousTime:
    """The time of a case in an earlier run.

    Attributes:
        time_ms: Its time in ms.
        disturbed: Whether it was disturbed by other work or by more ranks than cores.
        is_preliminary: Whether the case did not run to its end, so that iterations are missing.
    """

    time_ms: float
    disturbed: bool
    is_preliminary: bool = False


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """An earlier run with times to compare with those of a run.

    Attributes:
        run: The earlier run.
        remark: Why its times are not comparable, such as ``planted fault``; empty if they are.
    """

    run: RecordedRun
    remark: str = ""


def list_previous_times(
    run: RecordedRun, identities: Iterable[CaseIdentity]
) -> dict[str, PreviousTime]:
    """Return the times of cases in an earlier run, by id.

    Cases with another benchmark, other parameters or another number of ranks are left out.
    """
    times = {}
    for identity in identities:
        case = run.cases.get(identity.id)
        if case is None or _TIME not in case.metrics:
            continue
        work = (case.benchmark, case.version, case.np, case.params)
        if work == (identity.benchmark, identity.version, identity.np, dict(identity.params)):
            times[identity.id] = PreviousTime(
                case.metrics[_TIME].value, case.disturbed, not case.status.is_measured
            )
    return times


def load_previous_run(
    home: Path, folder: RunFolder, cases: Collection[str], *, keep: bool = True
) -> PreviousRun | None:
    """Load the run that `find_previous_run` finds for a run; None if there is none.

    Args:
        home: The folder of the runs.
        folder: The run.
        cases: The ids of its cases.
        keep: Whether missing runs may be added to the index of runs.

    Raises:
        UsageError: It has no report, and its event log cannot be read.
    """
    runs = [summary for _, summary in reversed(update_known_runs(home, keep=keep).values())]
    run = next((summary for summary in runs if summary.id == folder.id), None)
    if run is None:
        return None
    previous = find_previous_run(home, runs, run, cases)
    if previous is None:
        return None
    return PreviousRun(load_run(previous.folder), explain_other_conditions(previous, run))


def find_previous_run(
    home: Path,
    runs: Sequence[RunSummary],
    run: RunSummary,
    cases: Collection[str],
    load: Callable[[RunFolder], RecordedRun] = load_run,
    *,
    min_launches: int = 1,
) -> RunSummary | None:
    """Return the earlier run of the suite that shares the most cases with a run.

    It is the newest of those that share equally many. Runs with a planted fault, of another
    machine or without their end come after all others, and runs with too few launches after those
    with enough.

    Args:
        home: The folder of the runs.
        runs: Its runs, the newest first.
        run: The run.
        cases: The ids of its cases.
        load: Loads a run that is not in the index of runs; at most `MAX_LOADED` are loaded.
        min_launches: The launches of a case that the earlier run should have.
    """
    shared = frozenset(cases)
    earlier = list_earlier_runs(runs, run)
    loads_left = MAX_LOADED

    def count_launches(other: RunSummary) -> list[int]:
        """Return the launches of each shared case."""
        nonlocal loads_left
        launches_by_case: Mapping[str, int] = count_launches_of_run(home, other.id)
        if not launches_by_case and loads_left:
            loads_left -= 1
            launches_by_case = _load_launches(other, load)
        return [launches_by_case[case] for case in shared & launches_by_case.keys()]

    for has_other_conditions in (False, True):
        sharing = (
            (other, launches)
            for other in earlier
            if bool(explain_other_conditions(other, run)) == has_other_conditions
            and (launches := count_launches(other))
        )
        best: RunSummary | None = None
        best_rank = (False, 0)
        for other, launches in islice(sharing, 1 + MAX_SEARCHED):
            rank = (max(launches) >= min_launches, len(launches))
            if rank > best_rank:
                best = other
                best_rank = rank
            if best_rank == (True, len(shared)):
                break
        if best is not None:
            return best
    return None


def explain_other_conditions(other: RunSummary, run: RunSummary) -> str:
    """Return why the times of another run are not comparable; empty if they are."""
    if other.faults:
        return "planted fault"
    if other.machine and run.machine and other.machine.hardware != run.machine.hardware:
        return "other machine"
    return str(other.status) if other.status in _STATUSES_WITHOUT_END else ""


def list_earlier_runs(runs: Sequence[RunSummary], run: RunSummary) -> list[RunSummary]:
    """Return the ended runs of the suite before a run, the newest first like ``runs``."""
    run_ids = [other.id for other in runs]
    older_runs = runs[run_ids.index(run.id) + 1 :] if run.id in run_ids else []
    return [
        other for other in list_runs_of_suite(older_runs, run) if other.status != RunStatus.RUNNING
    ]


def list_runs_of_suite(runs: Iterable[RunSummary], run: RunSummary) -> list[RunSummary]:
    """Return the runs with the suite of a run.

    They have its name and, if both are known, its file. Only the names of the files count, since
    the same file may be given by several paths.
    """
    file_name = Path(run.file).name if run.file else ""
    return [
        other
        for other in runs
        if other.suite == run.suite
        and (not file_name or not other.file or Path(other.file).name == file_name)
    ]


def _load_launches(run: RunSummary, load: Callable[[RunFolder], RecordedRun]) -> Mapping[str, int]:
    """Return the launches with a time by case; empty for a run that cannot be read."""
    try:
        cases = load(run.folder).cases
    except SpbenchError:
        return {}  # a run that cannot be read is not compared with
    return {
        id_: max(1, len(case.medians.get(_TIME, ()))) if _TIME in case.metrics else 0
        for id_, case in cases.items()
    }
