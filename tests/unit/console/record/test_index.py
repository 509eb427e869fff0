"""The index of a home: it makes lists quick, and what they say never depends on it."""

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
from unit.events import recorded, whole_run

CONSOLE = {"pid": 1, "host": socket.gethostname(), "started": 5.0}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def reads(monkeypatch):
    """The ids of the runs whose run.json was read to list them."""
    found = []
    read = RunFolder.read_json

    def noted(folder, name):
        found.append(folder.id)
        return read(folder, name)

    monkeypatch.setattr(RunFolder, "read_json", noted)
    return found


def ended(home, **changes):
    """A run with its report, as the engine leaves it."""
    fields = {"verdict": "passed", "exit_code": 0, "finished": 9.0, "console": CONSOLE}
    folder = recorded(home, whole_run(), **fields | {"counts": {"passed": 1}} | changes)
    folder.write_json("report.json", build_report(folder.replay()))
    return folder


def note_run(folder):
    report = folder.read_json("report.json")
    add_run(folder, report, report["cases"])


def medians(home, *which):
    return [launch.median for launch in find_past_launches(home, *which or ("a", "time_ms"))]


def changed(folder, change):
    report = folder.read_json("report.json")
    change(report)
    folder.write_json("report.json", report)


# Lists


def test_what_the_index_knows_is_not_read_again_and_said_alike(home, reads):
    ended(home, counts={"passed": 3, "failed": 1}), ended(home, counts=None)
    first = list_summaries(home)
    reads.clear()
    assert list_summaries(home) == first
    assert sorted(run.passed for run in first) == ["", "3/4"]
    assert reads == []


def test_a_run_that_changed_is_read_again_and_one_that_is_gone_forgotten(home, reads):
    kept = ended(home)
    gone = ended(home)
    list_summaries(home)
    kept.write_json("run.json", kept.read_json("run.json") | {"verdict": "failed"})
    gone.path.rename(home / "elsewhere")
    reads.clear()
    assert [(run.id, run.verdict) for run in list_summaries(home)] == [(kept.id, "failed")]
    assert reads == [kept.id]
    assert read_heads(home).keys() == {kept.id}


def test_a_run_that_has_not_ended_is_looked_at_each_time(home, monkeypatch):
    folder = recorded(home, whole_run())
    told = {folder: True}
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: told[folder])
    assert [run.verdict for run in list_summaries(home)] == ["running"]
    told[folder] = False
    assert [run.verdict for run in list_summaries(home)] == ["unfinished"]
    assert read_heads(home) == {}


def test_no_index_is_made_where_there_are_no_runs(home):
    assert list_summaries(home) == []
    assert find_past_launches(home, "a", "time_ms") == []
    assert not home.exists()


def test_what_a_terminal_would_act_on_is_not_taken_from_the_index(home):
    folder = ended(home)
    list_summaries(home)
    with index_file.open_writing(home) as index:
        index.execute("UPDATE runs SET head = ?", ('{"suite": "\\u001b[2J", "verdict": "passed"}',))
    assert read_heads(home) == {}
    assert [run.suite for run in list_summaries(home)] == ["made-up"], folder


# An index that cannot be used


def torn(path):
    path.write_bytes(path.read_bytes()[:5000])


def overwritten(path):
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(8192))


def made_a_folder(path):
    path.unlink()
    path.mkdir()


def made_a_pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGE = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "no database": lambda path: path.write_text("garbage " * 500),
    "torn": torn,
    "overwritten": overwritten,
    "a folder": made_a_folder,
    "a pipe": made_a_pipe,
    "older": lambda path: set_version(path, 0),
    "newer": lambda path: set_version(path, 99),
}


def set_version(path, number):
    index = sqlite3.connect(path)
    index.execute("DROP TABLE launches")
    index.execute(f"PRAGMA user_version = {number}")
    index.close()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_worked_around(home, damage):
    ended(home)
    runs = list_summaries(home)
    launches = find_past_launches(home, "a", "time_ms")
    assert len(launches) == 1
    DAMAGE[damage](home / "index.sqlite")
    for _ in range(2):
        assert list_summaries(home) == runs
        assert find_past_launches(home, "a", "time_ms") == launches


@pytest.mark.parametrize("damage", sorted(DAMAGE.keys() - {"a folder", "a pipe", "newer"}))
def test_a_damaged_index_is_made_again(home, reads, damage):
    ended(home)
    list_summaries(home), find_past_launches(home, "a", "time_ms")
    DAMAGE[damage](home / "index.sqlite")
    for _ in range(2):
        list_summaries(home), find_past_launches(home, "a", "time_ms")
    reads.clear()
    list_summaries(home), find_past_launches(home, "a", "time_ms")
    assert reads == []


def test_the_index_of_a_newer_version_is_left_alone(home):
    ended(home)
    list_summaries(home)
    set_version(home / "index.sqlite", 99)
    before = (home / "index.sqlite").read_bytes()
    assert len(list_summaries(home)) == 1
    assert (home / "index.sqlite").read_bytes() == before


def test_an_index_that_another_console_holds_is_worked_around(home, monkeypatch):
    monkeypatch.setattr(index_file, "LOCK_TIMEOUT", 0.01)
    first = ended(home)
    list_summaries(home)
    holder = sqlite3.connect(home / "index.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    second = ended(home)
    note_run(second)
    assert {run.id for run in list_summaries(home)} == {first.id, second.id}
    assert len(find_past_launches(home, "a", "time_ms")) == 2
    holder.close()
    assert len(read_heads(home)) == 1


def test_without_sqlite_runs_are_listed(home, monkeypatch):
    ended(home)
    monkeypatch.delitem(sys.modules, "spbench.record.runs.index")
    monkeypatch.delattr("spbench.record.runs.index")
    monkeypatch.setitem(sys.modules, "spbench.record.runs.index", None)
    assert [run.verdict for run in list_summaries(home)] == ["passed"]
    assert not (home / "index.sqlite").exists()


AS_NOBODY = """
import os, sys
from pathlib import Path
from spbench.record.runs.history import list_summaries
from spbench.record.runs.index import find_past_launches, reindex
os.getuid() or os.setuid(65534)
home = Path(sys.argv[1])
print(len(list_summaries(home)), len(find_past_launches(home, "a", "time_ms")), reindex(home)[0])
"""


@pytest.mark.parametrize("indexed", [False, True])
def test_a_home_that_cannot_be_written_is_read(indexed):
    with tempfile.TemporaryDirectory(prefix="spbench-") as place:
        home = Path(place)
        ended(home)
        if indexed:
            find_past_launches(home, "a", "time_ms")
        for path in home.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o444)
        home.chmod(0o555)
        words = [sys.executable, "-c", AS_NOBODY, place]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        home.chmod(0o755)
        assert (done.stdout, done.stderr) == ("1 1 0\n", "")
        assert (home / "index.sqlite").exists() == indexed


def test_a_full_disk_is_worked_around(home, monkeypatch):
    ended(home)
    connected = index_file._connect

    def full(path, mode):
        """An index that may not grow: SQLite then says what it says on a full disk."""
        index = connected(path, mode)
        index.execute("PRAGMA max_page_count = 1")
        return index

    monkeypatch.setattr(index_file, "_connect", full)
    assert [run.verdict for run in list_summaries(home)] == ["passed"]
    assert len(find_past_launches(home, "a", "time_ms")) == 1
    count, why = reindex(home)
    assert count == 0
    assert "full" in why


def test_tables_that_another_console_has_just_made_are_kept(home, monkeypatch):
    """The version is read twice: as it was before the other console wrote, and as it is now."""
    first = ended(home)
    second = ended(home)
    note_run(first)
    read_version = index_file._read_version
    versions = iter([0])
    monkeypatch.setattr(
        index_file, "_read_version", lambda connection: next(versions, read_version(connection))
    )
    note_run(second)
    assert read_heads(home).keys() == {first.id, second.id}


def test_tables_that_a_newer_console_has_just_made_are_kept(home, monkeypatch):
    note_run(ended(home))
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
    note_run(ended(home))
    assert path.read_bytes() == newer


def test_two_consoles_at_once_lose_nothing(home):
    folders = [ended(home) for _ in range(12)]
    wrong = []

    def note(mine):
        try:
            for folder in mine:
                note_run(folder)
                list_summaries(home)
        except BaseException as error:
            wrong.append(error)

    consoles = [threading.Thread(target=note, args=(folders[at::2],)) for at in (0, 1)]
    for console in consoles:
        console.start()
    for console in consoles:
        console.join()
    assert wrong == []
    assert len(find_past_launches(home, "a", "time_ms")) == 12
    assert read_heads(home).keys() == {folder.id for folder in folders}


# Launches


def test_the_median_of_each_launch_is_known_at_a_runs_end(home, reads):
    folder = ended(home)
    report = folder.read_json("report.json")
    report["environment"]["fingerprint"] = {"id": "f1"}
    report["cases"][0] |= {"launches": [1, 3], "medians": {"time_ms": [2.0, 2.5], "x": ["?"]}}
    folder.write_json("report.json", report)
    note_run(folder)
    reads.clear()
    found = find_past_launches(home, "a", "time_ms", "f1")
    work = found[0].work
    assert found == [
        PastLaunch(folder.id, 1, 2.0, "f1", work),
        PastLaunch(folder.id, 3, 2.5, "f1", work),
    ]
    assert find_past_launches(home, "a", "time_ms") == found
    assert medians(home, "a", "time_ms", "f2") == medians(home, "b", "time_ms") == []
    assert medians(home, "a", "x") == []
    assert reads == []


def test_a_report_that_the_index_does_not_know_or_that_changed_is_read(home):
    folder = ended(home)
    before = medians(home)
    assert before
    changed(folder, lambda report: report["cases"][0].update(medians={"time_ms": [7.25]}))
    assert medians(home) == [7.25]
    folder.path.rename(home / "elsewhere")
    ended(home)
    assert medians(home) == before


def test_launches_of_a_case_that_did_not_pass_are_left_out(home):
    folder = ended(home)
    changed(folder, lambda report: report["cases"][0].update(status="failed"))
    assert medians(home) == []


def test_an_older_report_has_one_launch_a_case_and_its_counts_are_told(home):
    folder = ended(home, counts=None)

    def older(report):
        for case in report["cases"]:
            del case["medians"], case["launches"]

    changed(folder, older)
    assert [run.passed for run in list_summaries(home)] == [""]
    assert reindex(home) == (1, None)
    assert medians(home) == [2.0]
    assert [run.passed for run in list_summaries(home)] == ["1/1"]


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
def test_a_newer_or_a_damaged_report_tells_no_launches(home, report):
    folder = ended(home)
    folder.write_json("report.json", report)
    assert reindex(home) == (1, None)
    assert medians(home) == []
    assert len(list_summaries(home)) == 1


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "true", "null", "1" + "0" * 400])
def test_a_median_that_is_no_number_is_left_out(home, value):
    folder = ended(home)
    report = json.dumps(folder.read_json("report.json"))
    folder.report.write_text(report.replace('"time_ms": [2.0]', f'"time_ms": [{value}]'))
    assert medians(home) == []


def test_a_run_whose_last_line_is_torn_is_listed_and_counts_in_no_comparison(home):
    folder = recorded(home, whole_run()[:-1], console=CONSOLE)
    with folder.events.open("ab") as log:
        log.write(b'{"event":"run_e')
    assert [run.verdict for run in list_summaries(home)] == ["unfinished"]
    assert medians(home) == []
    assert folder.replay().cases["a"].status == "passed"
