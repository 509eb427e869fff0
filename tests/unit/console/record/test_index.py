"""The index of a home makes lists fast and never changes their content."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from spbench.record.runs import index_file
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import list_summaries
from spbench.record.runs.index import PastLaunch, add_run, find_past_launches, read_heads, reindex
from spbench.report.build import build_report
from support.sample_events import make_complete_run, record_run

CONSOLE = {"pid": 1, "host": socket.gethostname(), "started": 5.0}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def reads(monkeypatch):
    """Collect the ids of runs for each read of a JSON file of their folders."""
    ids = []
    read = RunFolder.read_json

    def read_and_record(folder, name):
        ids.append(folder.id)
        return read(folder, name)

    monkeypatch.setattr(RunFolder, "read_json", read_and_record)
    return ids


def record_indexed_run(home, **changes):
    """Record a run with its report, like the engine."""
    fields = {"verdict": "passed", "exit_code": 0, "finished": 9.0, "console": CONSOLE}
    folder = record_run(home, make_complete_run(), **fields | {"counts": {"passed": 1}} | changes)
    folder.write_json("report.json", build_report(folder.replay()))
    return folder


def note_run(folder):
    report = folder.read_json("report.json")
    add_run(folder, report, report["cases"])


def find_medians(home, *case_and_metric):
    return [
        launch.median for launch in find_past_launches(home, *case_and_metric or ("a", "time_ms"))
    ]


def change_report(folder, change):
    report = folder.read_json("report.json")
    change(report)
    folder.write_json("report.json", report)


# Lists


def test_indexed_runs_are_listed_without_reading_them(home, reads):
    record_indexed_run(home, counts={"passed": 3, "failed": 1})
    record_indexed_run(home, counts=None)
    first = list_summaries(home)
    reads.clear()
    assert list_summaries(home) == first
    assert {run.count_passed() for run in first} == {None, (3, 4)}
    assert reads == []


def test_changed_run_is_read_again_and_removed_run_dropped(home, reads):
    changed = record_indexed_run(home)
    removed = record_indexed_run(home)
    list_summaries(home)
    changed.write_json("run.json", changed.read_json("run.json") | {"verdict": "failed"})
    removed.path.rename(home / "elsewhere")
    reads.clear()
    assert [(run.id, run.status) for run in list_summaries(home)] == [(changed.id, "failed")]
    assert reads == [changed.id]
    assert read_heads(home).keys() == {changed.id}


def test_unfinished_run_is_not_indexed(home, monkeypatch):
    folder = record_run(home, make_complete_run())
    alive = {folder: True}
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: alive[folder])
    assert [run.status for run in list_summaries(home)] == ["running"]
    alive[folder] = False
    assert [run.status for run in list_summaries(home)] == ["unfinished"]
    assert read_heads(home) == {}


def test_home_without_runs_gets_no_index(home):
    assert list_summaries(home) == []
    assert find_past_launches(home, "a", "time_ms") == []
    assert not home.exists()


def test_ignores_index_rows_with_control_characters(home):
    folder = record_indexed_run(home)
    list_summaries(home)
    with index_file.open_writing(home) as index:
        index.execute("UPDATE runs SET head = ?", ('{"suite": "\\u001b[2J", "verdict": "passed"}',))
    assert read_heads(home) == {}
    assert [run.suite for run in list_summaries(home)] == ["made-up"], folder


# An index that cannot be used


def truncate(path):
    path.write_bytes(path.read_bytes()[:5000])


def overwrite(path):
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(8192))


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGE = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "no database": lambda path: path.write_text("garbage " * 500),
    "torn": truncate,
    "overwritten": overwrite,
    "a folder": replace_by_folder,
    "a pipe": replace_by_pipe,
    "older": lambda path: set_version(path, 0),
    "newer": lambda path: set_version(path, 99),
}


def set_version(path, number):
    index = sqlite3.connect(path)
    index.execute("DROP TABLE launches")
    index.execute(f"PRAGMA user_version = {number}")
    index.close()


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_index_does_not_change_lists(home, damage):
    record_indexed_run(home)
    runs = list_summaries(home)
    launches = find_past_launches(home, "a", "time_ms")
    assert len(launches) == 1
    DAMAGE[damage](home / "index.sqlite")
    for _ in range(2):
        assert list_summaries(home) == runs
        assert find_past_launches(home, "a", "time_ms") == launches


@pytest.mark.parametrize("damage", sorted(DAMAGE.keys() - {"a folder", "a pipe", "newer"}))
def test_damaged_index_is_rebuilt(home, reads, damage):
    record_indexed_run(home)
    list_summaries(home)
    find_past_launches(home, "a", "time_ms")
    DAMAGE[damage](home / "index.sqlite")
    for _ in range(2):
        list_summaries(home)
        find_past_launches(home, "a", "time_ms")
    reads.clear()
    list_summaries(home)
    find_past_launches(home, "a", "time_ms")
    assert reads == []


def test_index_of_a_newer_version_is_not_changed(home):
    record_indexed_run(home)
    list_summaries(home)
    set_version(home / "index.sqlite", 99)
    before = (home / "index.sqlite").read_bytes()
    assert len(list_summaries(home)) == 1
    assert (home / "index.sqlite").read_bytes() == before


@pytest.mark.slow
def test_locked_index_does_not_change_lists(home):
    first = record_indexed_run(home)
    list_summaries(home)
    holder = sqlite3.connect(home / "index.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    second = record_indexed_run(home)
    note_run(second)
    assert {run.id for run in list_summaries(home)} == {first.id, second.id}
    assert len(find_past_launches(home, "a", "time_ms")) == 2
    holder.close()
    assert len(read_heads(home)) == 1


def test_lists_runs_without_sqlite(home, monkeypatch):
    record_indexed_run(home)
    monkeypatch.delitem(sys.modules, "spbench.record.runs.index")
    monkeypatch.delattr("spbench.record.runs.index")
    monkeypatch.setitem(sys.modules, "spbench.record.runs.index", None)
    assert [run.status for run in list_summaries(home)] == ["passed"]
    assert not (home / "index.sqlite").exists()


SCRIPT_AS_NOBODY = """
import os, sys
from pathlib import Path
from spbench.record.runs.history import list_summaries
from spbench.record.runs.index import find_past_launches, reindex
os.getuid() or os.setuid(65534)
home = Path(sys.argv[1])
print(len(list_summaries(home)), len(find_past_launches(home, "a", "time_ms")), reindex(home)[0])
"""


@pytest.mark.parametrize("indexed", [False, True])
def test_read_only_home_is_listed(indexed):
    with tempfile.TemporaryDirectory(prefix="spbench-") as folder:
        home = Path(folder)
        record_indexed_run(home)
        if indexed:
            find_past_launches(home, "a", "time_ms")
        for path in home.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o444)
        home.chmod(0o555)
        command = [sys.executable, "-c", SCRIPT_AS_NOBODY, folder]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        home.chmod(0o755)
        assert (process.stdout, process.stderr) == ("1 1 0\n", "")
        assert (home / "index.sqlite").exists() == indexed


def test_full_disk_does_not_change_lists(home, monkeypatch):
    record_indexed_run(home)
    connect = index_file._connect

    def connect_without_space(path, mode):
        """Open an index that may not grow: SQLite then fails as on a full disk."""
        index = connect(path, mode)
        index.execute("PRAGMA max_page_count = 1")
        return index

    monkeypatch.setattr(index_file, "_connect", connect_without_space)
    assert [run.status for run in list_summaries(home)] == ["passed"]
    assert len(find_past_launches(home, "a", "time_ms")) == 1
    count, message = reindex(home)
    assert count == 0
    assert "full" in message


def test_keeps_tables_just_created_by_another_console(home, monkeypatch):
    """The version is read before the other console writes, and again after it."""
    first = record_indexed_run(home)
    second = record_indexed_run(home)
    note_run(first)
    read_version = index_file._read_version
    versions = iter([0])
    monkeypatch.setattr(
        index_file, "_read_version", lambda connection: next(versions, read_version(connection))
    )
    note_run(second)
    assert read_heads(home).keys() == {first.id, second.id}


def test_keeps_tables_just_created_by_a_newer_console(home, monkeypatch):
    note_run(record_indexed_run(home))
    path = home / index_file.NAME
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {index_file.VERSION + 1}")
    connection.close()
    newer = path.read_bytes()
    read_version = index_file._read_version
    versions = iter([0])
    monkeypatch.setattr(
        index_file, "_read_version", lambda connection: next(versions, read_version(connection))
    )
    note_run(record_indexed_run(home))
    assert path.read_bytes() == newer


def test_two_concurrent_consoles_lose_no_run(home):
    folders = [record_indexed_run(home) for _ in range(12)]
    errors = []

    def write_runs(own_folders):
        try:
            for folder in own_folders:
                note_run(folder)
                list_summaries(home)
        except BaseException as error:
            errors.append(error)

    consoles = [
        threading.Thread(target=write_runs, args=(folders[offset::2],)) for offset in (0, 1)
    ]
    for console in consoles:
        console.start()
    for console in consoles:
        console.join()
    assert errors == []
    assert len(find_past_launches(home, "a", "time_ms")) == 12
    assert read_heads(home).keys() == {folder.id for folder in folders}


# Launches


def test_indexes_the_median_of_each_launch(home, reads):
    folder = record_indexed_run(home)
    report = folder.read_json("report.json")
    report["environment"]["fingerprint"] = {"id": "f1"}
    report["cases"][0] |= {"launches": [1, 3], "medians": {"time_ms": [2.0, 2.5], "x": ["?"]}}
    folder.write_json("report.json", report)
    note_run(folder)
    reads.clear()
    launches = find_past_launches(home, "a", "time_ms", "f1")
    work = launches[0].work
    assert launches == [
        PastLaunch(folder.id, 1, 2.0, "f1", work),
        PastLaunch(folder.id, 3, 2.5, "f1", work),
    ]
    assert find_past_launches(home, "a", "time_ms") == launches
    assert find_medians(home, "a", "time_ms", "f2") == find_medians(home, "b", "time_ms") == []
    assert find_medians(home, "a", "x") == []
    assert reads == []


def test_reads_new_and_changed_reports(home):
    folder = record_indexed_run(home)
    before = find_medians(home)
    assert before
    change_report(folder, lambda report: report["cases"][0].update(medians={"time_ms": [7.25]}))
    assert find_medians(home) == [7.25]
    folder.path.rename(home / "elsewhere")
    record_indexed_run(home)
    assert find_medians(home) == before


def test_omits_launches_of_a_case_that_did_not_pass(home):
    folder = record_indexed_run(home)
    change_report(folder, lambda report: report["cases"][0].update(status="failed"))
    assert find_medians(home) == []


def test_old_report_counts_as_one_launch_per_case(home):
    folder = record_indexed_run(home, counts=None)

    def remove_launches(report):
        for case in report["cases"]:
            del case["medians"], case["launches"]

    change_report(folder, remove_launches)
    assert [run.count_passed() for run in list_summaries(home)] == [None]
    assert reindex(home) == (1, None)
    assert find_medians(home) == [2.0]
    assert [run.count_passed() for run in list_summaries(home)] == [(1, 1)]


@pytest.mark.parametrize(
    "report",
    [
        {"schema": "spbench.report/2", "cases": [{"id": "a", "status": "passed"}]},
        {"schema": "spbench.report/1", "cases": 5, "environment": []},
        {"schema": "spbench.report/1", "cases": [1, {"id": []}, {"id": "a", "medians": [1]}]},
        {"schema": "spbench.report/1", "cases": [{"id": "a", "medians": {"time_ms": 5}}]},
        [],
    ],
)
def test_newer_or_damaged_report_has_no_launches(home, report):
    folder = record_indexed_run(home)
    folder.write_json("report.json", report)
    assert reindex(home) == (1, None)
    assert find_medians(home) == []
    assert len(list_summaries(home)) == 1


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "true", "null", "1" + "0" * 400])
def test_omits_a_median_that_is_not_a_finite_number(home, value):
    folder = record_indexed_run(home)
    report = json.dumps(folder.read_json("report.json"))
    folder.report.write_text(report.replace('"time_ms": [2.0]', f'"time_ms": [{value}]'))
    assert find_medians(home) == []


def test_run_with_incomplete_last_line_has_no_medians(home):
    folder = record_run(home, make_complete_run()[:-1], console=CONSOLE)
    with folder.events.open("ab") as log:
        log.write(b'{"event":"run_e')
    assert [run.status for run in list_summaries(home)] == ["unfinished"]
    assert find_medians(home) == []
    assert folder.replay().cases["a"].status == "passed"
