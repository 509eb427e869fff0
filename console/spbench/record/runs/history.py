"""Summaries of the runs of a home, from their run.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spbench.record.machine.fingerprint import ComparedMachine, condense_fingerprint
from spbench.record.number_formatting import YEAR_10000
from spbench.record.planted_faults import FaultOutcome
from spbench.record.runs.case_durations import parse_planted_faults
from spbench.record.runs.folder import FileStamp, RunFolder, explain_unreadable, list_stamped_runs
from spbench.record.runs.notes import NO_NOTE, RunNote, has_note, read_note
from spbench_core.events.statuses import FINAL_STATUSES, CaseStatus, RunStatus

RUN_STATUSES = tuple(status for status in RunStatus if status is not RunStatus.BASELINE)
"""The statuses of runs in a list."""
UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in short. Times are seconds since the epoch, None if run.json lacks them.

    Attributes:
        suite: The suite's name, ``?`` if it is unknown.
        file: The suite's file, as it was given on the command line.
        status: One of `RUN_STATUSES`.
        host: The host of its console.
        counts: Its cases by status; None while it runs, or in an older run.
        faults: Its planted faults, such as ``slow@exchange``.
        machine: Its machines and versions; None if the ranks have not reported them.
        note: The user's note.
        unreadable: The reason if it cannot be read; None if it can.
        baseline_of: The run that a baseline was made of; None if this is a run.
        fault_outcome: FOUND if it failed only because its planted faults were found; None also for
            a summary of an older run.
    """

    folder: RunFolder
    id: str
    suite: str
    file: str | None
    started: float | None
    finished: float | None
    status: RunStatus
    exit_code: int | None
    argv: tuple[str, ...]
    duration_s: float | None
    host: str | None
    counts: Mapping[str, int] | None = field(default=None, hash=False)
    faults: tuple[str, ...] = ()
    machine: ComparedMachine | None = None
    note: RunNote = NO_NOTE
    unreadable: str | None = None
    baseline_of: str | None = None
    fault_outcome: FaultOutcome | None = None

    @property
    def status_text(self) -> str:
        """The status for people, who see whether only planted faults were found."""
        return self.fault_outcome or self.status

    def count_passed(self) -> tuple[int, int] | None:
        """Return the numbers of passed and of all cases; None if they are unknown."""
        if not self.counts:
            return None
        return self.counts.get(CaseStatus.PASSED, 0), sum(self.counts.values())


KnownRuns = dict[str, tuple[FileStamp, RunSummary]]
"""Runs by id, the oldest first, each with the stamp of the run.json that was read."""


def list_summaries(home: Path) -> list[RunSummary]:
    """Return the runs of a home, the oldest first, also those with a damaged run.json."""
    return [summary for _, summary in update_known_runs(home).values()]


def update_known_runs(
    home: Path, previous_runs: KnownRuns | None = None, *, keep: bool = True
) -> KnownRuns:
    """Return the runs of a home; ended runs are read again only after a change.

    Args:
        home: The folder of the runs.
        previous_runs: The runs of an earlier call; None takes them from the index.
        keep: Whether missing runs may be added to the index.
    """
    index = None if previous_runs is not None else _Index(home)
    runs: KnownRuns = {}
    for folder, stamp in list_stamped_runs(home):
        previous = previous_runs.get(folder.id) if previous_runs is not None else None
        if previous is not None and previous[0] == stamp and previous[1].status.is_final:
            summary = previous[1]
        else:
            summary = index.make_summary(folder, stamp) if index else read_summary(folder)
        note = read_note(folder) if has_note(folder) else NO_NOTE
        runs[folder.id] = stamp, summary if summary.note == note else replace(summary, note=note)
    if index and keep:
        index.update(runs)
    return runs


class _Index:
    """The indexed parts of run.json, and the runs that lack them.

    It is empty without sqlite3.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._missing: dict[str, tuple[FileStamp, Mapping[str, Any]]] = {}
        try:
            from spbench.record.runs import index  # only here, since a Python may lack sqlite3
        except ImportError:
            self._index = None
            self._heads = {}
        else:
            self._index = index
            self._heads = index.read_heads(home)

    def make_summary(self, folder: RunFolder, stamp: FileStamp) -> RunSummary:
        """Return a run in short, read again if its run.json has changed."""
        if reason := explain_unreadable(stamp):  # first, since the index may know an empty head
            return _unreadable_summary(folder, reason)
        indexed = self._heads.get(folder.id)
        if indexed is not None and indexed[0] == stamp:
            return make_summary(folder, indexed[1])
        run = folder.read_json("run.json")
        summary = make_summary(folder, run)
        if self._index and summary.status.is_final:
            self._missing[folder.id] = stamp, self._index.make_head(run)
        return summary

    def update(self, runs: KnownRuns) -> None:
        """Add the missing runs to the index, and remove the runs that no longer exist."""
        if self._index:
            self._index.update_heads(self._home, self._missing, self._heads.keys() - runs.keys())


def index_ended_run(
    folder: RunFolder, report: Mapping[str, Any], cases: Iterable[Mapping[str, Any]]
) -> None:
    """Add a run that has ended to the index. If that fails, it is added later.

    Args:
        folder: The folder of the run.
        report: Its report; its cases are not used.
        cases: The cases of the report.
    """
    with suppress(ImportError):
        from spbench.record.runs.index import add_run  # a Python may lack sqlite3

        add_run(folder, report, cases)


def read_summary_with_note(folder: RunFolder) -> RunSummary:
    """Return a run in short, with its note."""
    return replace(read_summary(folder), note=read_note(folder))


def read_summary(folder: RunFolder) -> RunSummary:
    """Return a run in short, from its run.json."""
    if reason := folder.explain_unreadable():
        return _unreadable_summary(folder, reason)
    return make_summary(folder, folder.read_json("run.json"))


def _unreadable_summary(folder: RunFolder, reason: str) -> RunSummary:
    return RunSummary(
        folder=folder,
        id=folder.id,
        suite=UNKNOWN,
        file=None,
        started=None,
        finished=None,
        status=RunStatus.UNREADABLE,
        exit_code=None,
        argv=(),
        duration_s=None,
        host=None,
        unreadable=reason,
    )


def make_summary(folder: RunFolder, run: Mapping[str, Any]) -> RunSummary:
    """Return a run in short, from the content of its run.json."""
    console = run.get("console")
    console = console if isinstance(console, dict) else {}
    started = _read_time(console.get("started"))
    finished = _read_time(run.get("finished"))
    code = run.get("exit_code")
    argv = run.get("argv")
    arguments = tuple(map(str, argv)) if isinstance(argv, list) else ()
    return RunSummary(
        folder=folder,
        id=folder.id,
        suite=_read_text(run.get("suite")) or UNKNOWN,
        file=_read_text(run.get("file")),
        started=started,
        finished=finished,
        status=_read_status(folder, run.get("verdict")),
        exit_code=code if type(code) is int else None,
        argv=arguments,
        duration_s=_compute_duration(started, finished),
        host=_read_text(console.get("host")),
        counts=_read_counts(run.get("counts")),
        faults=_read_faults(run.get("request"), arguments),
        machine=condense_fingerprint(run.get("fingerprint")),
        fault_outcome=_read_fault_outcome(run.get("fault_outcome")),
    )


def _read_faults(request: Any, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the planted faults of a request; without one, those of the command line.

    ``run --failed`` repeats faults that its command line does not have.
    """
    faults = request.get("inject") if isinstance(request, dict) else None
    recorded = faults if isinstance(faults, list) else parse_planted_faults(argv)
    return tuple(map(str, recorded))


def _read_fault_outcome(value: Any) -> FaultOutcome | None:
    return FaultOutcome.FOUND if value == FaultOutcome.FOUND else None


def _read_counts(value: Any) -> Mapping[str, int] | None:
    counts = value if isinstance(value, dict) else {}
    return {
        name: count for name, count in counts.items() if type(count) is int and count > 0
    } or None


def _read_status(folder: RunFolder, recorded: Any) -> RunStatus:
    if recorded in FINAL_STATUSES:
        return RunStatus(recorded)
    return RunStatus.UNFINISHED if folder.is_alive() is False else RunStatus.RUNNING


def _compute_duration(started: float | None, finished: float | None) -> float | None:
    return None if started is None or finished is None else round(max(0.0, finished - started), 6)


def _read_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _read_time(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < YEAR_10000 else None


def format_passed(counts: tuple[int, int] | None) -> str:
    """Return ``3/4``, passed and all cases; empty if the numbers are unknown."""
    if counts is None:
        return ""
    passed, total = counts
    return f"{passed}/{total}"
