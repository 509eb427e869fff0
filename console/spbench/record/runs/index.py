"""The index of a home's runs, for lists and comparisons of many runs.

It is built from run.json and report.json, which are the source of record. A row counts only while
its file is unchanged. If the index cannot be used, the answers come from the folders.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spbench.record.machine.fingerprint import condense_fingerprint
from spbench.record.runs.case_durations import hash_work, measure_durations
from spbench.record.runs.files import may_have_controls
from spbench.record.runs.folder import NO_FILE, FileStamp, RunFolder, file_stamp, list_runs
from spbench.record.runs.index_file import (
    NAME,
    UnusableIndexError,
    open_in_memory,
    open_reading,
    open_writing,
    remove_index,
)
from spbench.record.runs.indexed_report import (
    IndexedReport,
    join_hosts,
    make_indexed_report,
    read_case,
    read_indexed_report,
)

MAX_REPORTS_READ = 50
"""The number of reports that are read for an estimate; 1,000 take several seconds."""
_MAX_QUERY_VALUES = 900
"""The number of values in a query; older versions of SQLite allow 999."""
Head = Mapping[str, Any]
"""The part of the run.json of an ended run that lists show."""
_HEAD = ("suite", "file", "argv", "verdict", "exit_code", "finished", "counts", "fault_outcome")


@dataclass(frozen=True, slots=True)
class PastLaunch:
    """The median of a metric in one launch of a case that passed.

    Attributes:
        job: The number of the launch.
        fingerprint: The short hash of the machines; None if the run did not record them.
        work: The hash of the case's work, which another case of the same id may not share.
    """

    run: str
    job: int
    median: float
    fingerprint: str | None
    work: str


@dataclass(frozen=True, slots=True)
class PastDuration:
    """The duration of one case of a recorded run.

    Attributes:
        run: The run's id.
        fingerprint: The short hash of its machines.
        work: The hash of the case's work.
        seconds: The duration of one repeat.
        launches: The number of launches of the case.
        start: Seconds from the launch of its job until it began; None if it was not the first case.
    """

    run: str
    fingerprint: str
    work: str
    seconds: float
    launches: int
    start: float | None


def make_head(run: Mapping[str, Any]) -> Head:
    """Return the part of a run.json that the index has."""
    console = run.get("console")
    console = console if isinstance(console, dict) else {}
    console_fields = {name: console[name] for name in ("host", "started") if name in console}
    head = {name: run[name] for name in _HEAD if name in run} | {"console": console_fields}
    request = run.get("request")
    if isinstance(request, dict) and "inject" in request:
        head["request"] = {"inject": request["inject"]}
    if machine := condense_fingerprint(run.get("fingerprint")):
        head["fingerprint"] = list(machine)  # the full one has the names of all hosts
    return head


def read_heads(home: Path) -> dict[str, tuple[FileStamp, Head]]:
    """Return the indexed parts of run.json by the runs' ids; empty on failure."""
    with suppress(UnusableIndexError), open_reading(home) as index:
        rows = index.execute("SELECT id, changed, bytes, head FROM runs").fetchall()
        return dict(_parse_heads(rows))
    return {}


def _parse_heads(rows: list[tuple[Any, ...]]) -> Iterator[tuple[str, tuple[FileStamp, Head]]]:
    for run, changed, size, text in rows:
        if not _is_plain(str(text)):
            continue
        with suppress(ValueError, TypeError, RecursionError):
            head = json.loads(text)
            if isinstance(head, dict):
                yield run, ((changed, size), head)


def _is_plain(text: str) -> bool:
    is_plain = "\\" not in text and text.isprintable()
    return is_plain or not may_have_controls(text.encode(errors="surrogatepass"))


def update_heads(
    home: Path, heads: Mapping[str, tuple[FileStamp, Head]], removed: Collection[str]
) -> None:
    """Add these runs and remove those that are gone, if the index can be used."""
    if heads or removed:
        with suppress(UnusableIndexError), open_writing(home) as index:
            for run, (stamp, head) in heads.items():
                _put_head(index, run, stamp, head)
            for run in removed:
                _forget(index, run)


def _put_head(index: sqlite3.Connection, run: str, stamp: FileStamp, head: Head) -> None:
    index.execute(
        "INSERT INTO runs (id, changed, bytes, head) VALUES (?, ?, ?, ?) ON CONFLICT (id) "
        "DO UPDATE SET changed = excluded.changed, bytes = excluded.bytes, head = excluded.head",
        (run, *stamp, json.dumps(head)),
    )


def _forget(index: sqlite3.Connection, run: str) -> None:
    index.execute("DELETE FROM runs WHERE id = ?", (run,))
    _forget_cases(index, run)


def _forget_cases(index: sqlite3.Connection, run: str) -> None:
    index.execute("DELETE FROM cases WHERE run = ?", (run,))
    index.execute("DELETE FROM launches WHERE run = ?", (run,))


def find_past_launches(
    home: Path, case: str, metric: str, fingerprint: str | None = None
) -> list[PastLaunch]:
    """Return the launches of a case that passed, those of the oldest run first.

    Args:
        home: The folder of the runs. Missing reports are added to the index first.
        case: The case's id.
        metric: The metric's name.
        fingerprint: The machines on which it ran; None for any.
    """
    query = (
        "SELECT launches.run, launch, median, fingerprint, work FROM launches "
        "JOIN cases ON cases.run = launches.run AND cases.id = case_id "
        "JOIN runs ON runs.id = launches.run "
        "WHERE case_id = :case AND metric = :metric AND status = 'passed' "
        "AND (:fingerprint IS NULL OR fingerprint = :fingerprint) ORDER BY launches.run, launch"
    )
    query_values = {"case": case, "metric": metric, "fingerprint": fingerprint}
    rows = _run_query(home, query, query_values)
    return [PastLaunch(*row) for row in rows]


def find_past_medians(
    home: Path, metric: str, fingerprint: str
) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Return by case and work, and by run, a metric's medians of launches.

    These are the launches of `find_past_launches`, for all cases at once.
    """
    query = (
        "SELECT case_id, work, launches.run, median FROM launches "
        "JOIN cases ON cases.run = launches.run AND cases.id = case_id "
        "JOIN runs ON runs.id = launches.run "
        "WHERE metric = ? AND status = 'passed' AND fingerprint = ? ORDER BY launches.run, launch"
    )
    runs_by_case_and_work: dict[tuple[str, str], dict[str, list[float]]] = {}
    for case, work, run, median in _run_query(home, query, (metric, fingerprint)):
        runs_by_case_and_work.setdefault((case, work), {}).setdefault(run, []).append(median)
    return runs_by_case_and_work


def find_past_durations(
    home: Path,
    works: Collection[str],
    hosts: Collection[str],
    cores: int | None,
    *,
    max_reports: int = MAX_REPORTS_READ,
) -> list[PastDuration]:
    """Return the durations of cases with any of these works, the newest run first.

    Args:
        home: The folder of the runs.
        works: Hashes of `hash_work`.
        hosts: The hosts of the runs.
        cores: The number of CPUs of each host; None for any.
        max_reports: The most missing reports that are added to the index first, the newest ones.
            Not all are, because a user may wait for the answer.
    """
    machine = (join_hosts(hosts), cores, cores)
    durations: list[PastDuration] = []
    for queried_works in _split_for_queries(sorted(works)):
        query = (
            "SELECT cases.run, fingerprint, work, seconds, launches, start FROM cases "
            "JOIN runs ON runs.id = cases.run "
            "WHERE seconds IS NOT NULL AND fingerprint IS NOT NULL "
            "AND hosts = ? AND (? IS NULL OR cores = ?) "
            f"AND work IN ({', '.join('?' * len(queried_works))})"
        )
        rows = _run_query(home, query, (*machine, *queried_works), max_reports)
        durations += (PastDuration(*row) for row in rows)
    return sorted(durations, key=lambda duration: duration.run, reverse=True)


def _split_for_queries(works: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield works in groups of the size that a query allows."""
    for first in range(0, len(works), _MAX_QUERY_VALUES):
        yield works[first : first + _MAX_QUERY_VALUES]


def _run_query(
    home: Path,
    query: str,
    values: tuple[Any, ...] | Mapping[str, Any],
    max_reports: int | None = None,
) -> list[tuple[Any, ...]]:
    if not list_runs(home):
        return []
    try:
        with open_writing(home) as index:
            _index_reports(index, home, max_reports)
            return index.execute(query, values).fetchall()
    except UnusableIndexError:
        with open_in_memory(home) as index:
            _index_reports(index, home, max_reports)
            return index.execute(query, values).fetchall()


def add_run(
    folder: RunFolder, report: Mapping[str, Any], cases: Iterable[Mapping[str, Any]]
) -> None:
    """Add a run that has ended, from its report, if the index can be used.

    Args:
        folder: The folder of the run.
        report: Its report; its cases are not used.
        cases: The cases of the report.
    """
    with suppress(UnusableIndexError), open_writing(folder.path.parent.parent) as index:
        _put_run(index, folder, make_indexed_report(report, map(read_case, cases)))


def reindex(home: Path) -> tuple[int, str | None]:
    """Rebuild the index; return the number of runs, and an error or None."""
    remove_index(home)
    if os.path.lexists(home / NAME):
        return 0, f"{home / NAME} cannot be removed"
    try:
        with open_writing(home) as index:
            _index_reports(index, home)
            _put_unreported(index, home)
            count = index.execute("SELECT COUNT(*) FROM runs").fetchone()[0]
            return int(count), None
    except UnusableIndexError as error:
        return 0, str(error)


def _index_reports(index: sqlite3.Connection, home: Path, max_reports: int | None = None) -> None:
    """Read reports that are missing in the index or have changed.

    With ``max_reports``, only the newest ones are read, at most this number. Runs that no longer
    exist are removed.
    """
    rows = index.execute("SELECT id, report_changed, report_bytes FROM runs").fetchall()
    stamps = {run: (changed, size) for run, changed, size in rows}
    folders = list_runs(home)
    num_read = 0
    for folder in reversed(folders):
        stamp = file_stamp(folder.report)
        if stamp == NO_FILE or stamps.get(folder.id) == stamp:
            continue
        if max_reports is not None and num_read == max_reports:
            break
        _put_run(index, folder, read_indexed_report(folder.report))
        num_read += 1
    for run in stamps.keys() - {folder.id for folder in folders}:
        _forget(index, run)


def _put_unreported(index: sqlite3.Connection, home: Path) -> None:
    """Add the runs that have ended without a report."""
    indexed_runs = {run for (run,) in index.execute("SELECT id FROM runs")}
    for folder in list_runs(home):
        if folder.id not in indexed_runs and "verdict" in (run := folder.read_json("run.json")):
            _put_head(index, folder.id, file_stamp(folder.path / "run.json"), make_head(run))


def _put_run(index: sqlite3.Connection, folder: RunFolder, report: IndexedReport) -> None:
    run = folder.id
    stamp = file_stamp(folder.path / "run.json")
    head = dict(make_head(folder.read_json("run.json")))
    if not head.get("counts"):  # run.json of an older run lacks them
        head["counts"] = Counter(case.status for case in report.cases.values())
    _put_head(index, run, stamp, head)
    report_stamp = file_stamp(folder.report)
    index.execute(
        "UPDATE runs SET fingerprint = ?, hosts = ?, cores = ?, report_changed = ?, "
        "report_bytes = ? WHERE id = ?",
        (report.fingerprint, report.hosts, report.cores, *report_stamp, run),
    )
    _forget_cases(index, run)
    cases = report.cases.values()
    durations = measure_durations(
        report.started, [case.times for case in cases if case.times is not None]
    )
    for case in cases:
        duration = durations.get(case.id)
        figures = (
            (duration.seconds, duration.num_launches, duration.start_seconds)
            if duration
            else (None,) * 3
        )
        index.execute(
            "INSERT INTO cases VALUES (?, ?, ?, ?, ?, ?, ?)",
            (run, case.id, case.status, hash_work(*case.work, report.argv, case.id), *figures),
        )
    rows = [(run, case.id, *median) for case in cases for median in case.medians]
    index.executemany("INSERT OR REPLACE INTO launches VALUES (?, ?, ?, ?, ?)", rows)
