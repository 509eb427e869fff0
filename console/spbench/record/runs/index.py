"""The index of a home's runs: what lists and comparisons ask of many runs at once.

It is made of run.json and report.json, which stay the truth: a row counts only as long as its file
has not changed, and where the index cannot be used, the answers come from the folders.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from spbench.record.runs.case_durations import CaseTimes, measure_durations
from spbench.record.runs.case_work import hash_work
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
from spbench.record.runs.report_text import read_report_file
from spbench_core.events.statuses import FINAL_STATUSES, CaseStatus

REPORT = "spbench.report/1"
MAX_CASES_READ = 50
"""Reports that are read for an estimate; 1,000 of them take several seconds."""
_MOST_NAMES = 900
"""Values that one question may have: 999 in older versions of SQLite."""
Head = Mapping[str, Any]
"""What run.json says of a run that has ended, as far as lists show it."""
_HEAD = ("suite", "file", "argv", "verdict", "exit_code", "finished", "counts")


@dataclass(frozen=True, slots=True)
class PastLaunch:
    """The median of a metric in one launch of a case that passed; ``job`` is the launch's number.

    ``fingerprint`` is the short hash of the machines, None of a run that did not tell them;
    ``work`` is that of the case, which another case of the same id need not share.
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
        work: The work of the case, as `case_work.work_of` has it.
        seconds: One repeat.
        launches: The launches of the case.
        start: From the launch of its job until the case began; None: it was not the first there.
    """

    run: str
    fingerprint: str
    work: str
    seconds: float
    launches: int
    start: float | None


def make_head(run: Mapping[str, Any]) -> Head:
    """Return the parts of a run.json that an index keeps."""
    console = run.get("console")
    console = console if isinstance(console, dict) else {}
    place = {name: console[name] for name in ("host", "started") if name in console}
    return {name: run[name] for name in _HEAD if name in run} | {"console": place}


# What lists ask


def read_heads(home: Path) -> dict[str, tuple[FileStamp, Head]]:
    """Return what the index has of run.json, by the runs' ids; nothing where it cannot be used."""
    with suppress(UnusableIndexError), open_reading(home) as index:
        rows = index.execute("SELECT id, changed, bytes, head FROM runs").fetchall()
        return dict(_heads(rows))
    return {}


def _heads(rows: list[tuple[Any, ...]]) -> Iterator[tuple[str, tuple[FileStamp, Head]]]:
    for run, changed, size, text in rows:
        if not _is_plain(str(text)):
            continue
        with suppress(ValueError, TypeError, RecursionError):
            head = json.loads(text)
            if isinstance(head, dict):
                yield run, ((changed, size), head)


def _is_plain(text: str) -> bool:
    plain = "\\" not in text and text.isprintable()
    return plain or not may_have_controls(text.encode(errors="surrogatepass"))


def update_heads(
    home: Path, heads: Mapping[str, tuple[FileStamp, Head]], gone: Collection[str]
) -> None:
    """Note these runs, and forget those that are gone; nothing where the index cannot be used."""
    if heads or gone:
        with suppress(UnusableIndexError), open_writing(home) as index:
            for run, (stamp, head) in heads.items():
                _put_head(index, run, stamp, head)
            for run in gone:
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


# What comparisons ask


def find_past_launches(
    home: Path, case: str, metric: str, fingerprint: str | None = None
) -> list[PastLaunch]:
    """Return the launches of a case that passed, the oldest run's first.

    Args:
        home: The folder of the runs. Reports that the index does not know yet are read.
        case: The case's id.
        metric: The metric's name.
        fingerprint: The machines on which it ran; None for any.
    """
    question = (
        "SELECT launches.run, launch, median, fingerprint, work FROM launches "
        "JOIN cases ON cases.run = launches.run AND cases.id = case_id "
        "JOIN runs ON runs.id = launches.run "
        "WHERE case_id = :case AND metric = :metric AND status = 'passed' "
        "AND (:fingerprint IS NULL OR fingerprint = :fingerprint) ORDER BY launches.run, launch"
    )
    values = {"case": case, "metric": metric, "fingerprint": fingerprint}
    rows = _answer(home, question, values)
    return [PastLaunch(*row) for row in rows]


def find_past_runs(
    home: Path, metric: str, fingerprint: str
) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Return by case and work, and by run, a metric's medians of launches on the same machines.

    As `past_launches` has them, of all cases at once.
    """
    question = (
        "SELECT case_id, work, launches.run, median FROM launches "
        "JOIN cases ON cases.run = launches.run AND cases.id = case_id "
        "JOIN runs ON runs.id = launches.run "
        "WHERE metric = ? AND status = 'passed' AND fingerprint = ? ORDER BY launches.run, launch"
    )
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for case, work, run, value in _answer(home, question, (metric, fingerprint)):
        found.setdefault((case, work), {}).setdefault(run, []).append(value)
    return found


def find_past_durations(
    home: Path, works: Collection[str], hosts: Collection[str], cores: int | None
) -> list[PastDuration]:
    """Return the durations of cases with any of these works, the newest run first.

    Args:
        home: The folder of the runs. Of the reports that the index does not know yet, the newest
            `MOST_READ` are read: a user may wait for the answer.
        works: The works, as `case_work.work_of` has them.
        hosts: The hosts that the runs were on.
        cores: The CPUs of each of them; None: any.
    """
    machine = (_host_text(hosts), cores, cores)
    durations: list[PastDuration] = []
    for batch in _batches(sorted(works)):
        question = (
            "SELECT cases.run, fingerprint, work, seconds, launches, start FROM cases "
            "JOIN runs ON runs.id = cases.run "
            "WHERE seconds IS NOT NULL AND fingerprint IS NOT NULL "
            "AND hosts = ? AND (? IS NULL OR cores = ?) "
            f"AND work IN ({', '.join('?' * len(batch))})"
        )
        rows = _answer(home, question, (*machine, *batch), MAX_CASES_READ)
        durations += (PastDuration(*row) for row in rows)
    return sorted(durations, key=lambda duration: duration.run, reverse=True)


def _batches(works: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield works in groups that a question of SQLite may name."""
    for first in range(0, len(works), _MOST_NAMES):
        yield works[first : first + _MOST_NAMES]


def _host_text(hosts: Iterable[Any]) -> str:
    """Return the names of hosts as the index keeps them."""
    return ",".join(sorted(map(str, hosts)))


def _answer(
    home: Path,
    question: str,
    values: tuple[Any, ...] | Mapping[str, Any],
    most: int | None = None,
) -> list[tuple[Any, ...]]:
    if not list_runs(home):
        return []
    try:
        with open_writing(home) as index:
            _catch_up(index, home, most)
            return index.execute(question, values).fetchall()
    except UnusableIndexError:
        with open_in_memory(home) as index:
            _catch_up(index, home, most)
            return index.execute(question, values).fetchall()


def add_run(
    folder: RunFolder, report: Mapping[str, Any], cases: Iterable[Mapping[str, Any]]
) -> None:
    """Note a run that has ended, from its report; nothing where the index cannot be used.

    Args:
        folder: The folder of the run.
        report: Its report, of which the cases are not used.
        cases: The cases of the report.
    """
    with suppress(UnusableIndexError), open_writing(folder.path.parent.parent) as index:
        _put_run(index, folder, report, map(_indexed_case, cases))


def reindex(home: Path) -> tuple[int, str | None]:
    """Make the index again from the folders; return the runs in it, and why there is none."""
    remove_index(home)
    if os.path.lexists(home / NAME):
        return 0, f"{home / NAME} cannot be removed"
    try:
        with open_writing(home) as index:
            _catch_up(index, home)
            _put_unreported(index, home)
            count = index.execute("SELECT COUNT(*) FROM runs").fetchone()[0]
            return int(count), None
    except UnusableIndexError as error:
        return 0, str(error)


def _catch_up(index: sqlite3.Connection, home: Path, most: int | None = None) -> None:
    """Read reports that the index does not know as they are now, the newest ``most`` of them."""
    rows = index.execute("SELECT id, report_changed, report_bytes FROM runs").fetchall()
    known = {run: (changed, size) for run, changed, size in rows}
    folders = list_runs(home)
    read = 0
    for folder in reversed(folders):
        stamp = file_stamp(folder.report)
        if stamp == NO_FILE or known.get(folder.id) == stamp:
            continue
        if most is not None and read == most:
            break
        _put_run(index, folder, *_indexed_report(folder.report))
        read += 1
    for run in known.keys() - {folder.id for folder in folders}:
        _forget(index, run)


def _put_unreported(index: sqlite3.Connection, home: Path) -> None:
    """Note the runs that have ended and could write no report."""
    known = {run for (run,) in index.execute("SELECT id FROM runs")}
    for folder in list_runs(home):
        if folder.id not in known and "verdict" in (run := folder.read_json("run.json")):
            _put_head(index, folder.id, file_stamp(folder.path / "run.json"), make_head(run))


def _put_run(
    index: sqlite3.Connection,
    folder: RunFolder,
    report: Mapping[str, Any],
    indexed: Iterable[_IndexedCase | None],
) -> None:
    run = folder.id
    stamp = file_stamp(folder.path / "run.json")
    head = dict(make_head(folder.read_json("run.json")))
    known = report.get("schema") == REPORT
    cases = {case.id: case for case in indexed if case is not None} if known else {}
    if not head.get("counts"):  # an older run's
        head["counts"] = Counter(case.status for case in cases.values())
    _put_head(index, run, stamp, head)
    index.execute(
        "UPDATE runs SET fingerprint = ?, hosts = ?, cores = ?, report_changed = ?, "
        "report_bytes = ? WHERE id = ?",
        (_fingerprint(report), *_machines(report), *file_stamp(folder.report), run),
    )
    _forget_cases(index, run)
    argv = _object(report.get("run")).get("argv")
    argv = argv if isinstance(argv, list) else []
    durations = measure_durations(
        _moment(_object(report.get("run")).get("started")),
        [case.times for case in cases.values() if case.times is not None],
    )
    for case in cases.values():
        duration = durations.get(case.id)
        figures = (duration.seconds, duration.launches, duration.start) if duration else (None,) * 3
        index.execute(
            "INSERT INTO cases VALUES (?, ?, ?, ?, ?, ?, ?)",
            (run, case.id, case.status, hash_work(*case.work, argv, case.id), *figures),
        )
    rows = [(run, case.id, *row) for case in cases.values() for row in case.medians]
    index.executemany("INSERT OR REPLACE INTO launches VALUES (?, ?, ?, ?, ?)", rows)


# A report, of which nothing is sure but that it is JSON


@dataclass(frozen=True, slots=True)
class _IndexedCase:
    """What the index keeps of a case.

    ``work`` is the benchmark, its version, the ranks and the parameters; ``times`` is None if the
    case has not run.
    """

    id: str
    status: str
    work: tuple[Any, Any, Any, Mapping[str, Any]]
    medians: tuple[tuple[str, int, float], ...]
    times: CaseTimes | None = None


def _indexed_report(path: Path) -> tuple[dict[str, Any], list[_IndexedCase | None]]:
    """Return a report without its cases, and what the index keeps of them; nothing if damaged."""
    try:
        return read_report_file(path, _indexed_case)
    except (OSError, ValueError):
        return {}, []


def _indexed_case(case: Any) -> _IndexedCase | None:
    """Return what the index keeps of a case; None if it is none."""
    if not isinstance(case, dict) or not isinstance(case.get("id"), str):
        return None
    about = (case.get("benchmark"), case.get("version", 1), case.get("np"))
    work = (*about, _object(case.get("params")))
    status = str(case.get("status"))
    return _IndexedCase(case["id"], status, work, tuple(_medians(case)), _times(case, status))


def _times(case: Mapping[str, Any], status: str) -> CaseTimes | None:
    started = _moment(case.get("started"))
    finished = _moment(case.get("finished"))
    if started is None or finished is None or status not in FINAL_STATUSES:
        return None
    launches = case.get("launches")
    jobs = launches if isinstance(launches, list) else []
    if not jobs:
        jobs = [_object(case.get("launch")).get("job")]
    numbers = tuple(job for job in jobs if type(job) is int)
    samples = _object(case.get("samples")).get("time_ms")
    repeats = len(samples) if isinstance(samples, list) and len(numbers) == 1 else 1
    return CaseTimes(case["id"], CaseStatus(status), started, finished, numbers, max(1, repeats))


def _moment(value: Any) -> float | None:
    """Return the seconds since the epoch of a time in RFC 3339; None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _fingerprint(report: Mapping[str, Any]) -> str | None:
    told = _object(_object(report.get("environment")).get("fingerprint")).get("id")
    return told if isinstance(told, str) else None


def _machines(report: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Return the hosts of a run as `_host_text` has them, and their CPUs if all have as many."""
    machines = _object(_object(report.get("environment")).get("fingerprint"))
    hosts = machines.get("hosts")
    cores = machines.get("cores")
    names = _host_text(hosts) if isinstance(hosts, list) else None
    [count] = cores if isinstance(cores, list) and len(cores) == 1 else [None]
    return names, count if type(count) is int and 0 < count < 1 << 32 else None


def _medians(case: Mapping[str, Any]) -> Iterator[tuple[str, int, float]]:
    """Yield metric, job and median of each launch of a case."""
    if "medians" not in case:
        yield from _one_launch(case)
        return
    jobs = case.get("launches")
    jobs = jobs if isinstance(jobs, list) else []
    for metric, values in _object(case["medians"]).items():
        for place, value in enumerate(values if isinstance(values, list) else ()):
            job = jobs[place] if len(jobs) == len(values) else place + 1
            yield from _launch(metric, job, value)


def _one_launch(case: Mapping[str, Any]) -> Iterator[tuple[str, int, float]]:
    """Yield the same of an older report: one launch ran all repeats of a case."""
    job = _object(case.get("launch")).get("job")
    for metric, figures in _object(case.get("metrics")).items():
        yield from _launch(metric, job, _object(figures).get("value"))


def _launch(metric: str, job: Any, value: Any) -> Iterator[tuple[str, int, float]]:
    finite = type(value) in (int, float) and abs(value) < 1e300  # neither NaN nor an infinity
    if finite and type(job) is int and 0 <= job < 1 << 32:
        yield metric, job, float(value)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
