"""Tests of commands that rebuild the index and remove old runs."""

import json
import os
import sqlite3
import time

import pytest

from spbench.record.runs.folder import RunFolder
from spbench.record.runs.index import read_heads
from support.sample_events import make_complete_run, record_run


def record_finished_run(home, **changes):
    fields = {"verdict": "passed", "exit_code": 0, "counts": {"passed": 3, "failed": 1}}
    return record_run(home, make_complete_run(), **fields | changes)


def test_reindex_replaces_a_damaged_index(spbench, home):
    record_finished_run(home)
    (home / "index.sqlite").write_text("damaged")
    assert spbench("results", "reindex") == (0, f"runs in the index of {home}: 1\n", "")
    rows = sqlite3.connect(home / "index.sqlite").execute("SELECT COUNT(*) FROM runs").fetchall()
    assert rows == [(1,)]


def test_unwritable_index_is_reported(spbench, home, messages):
    record_finished_run(home)
    (home / "index.sqlite").mkdir()
    status, out, err = spbench("results", "reindex")
    assert (status, out) == (4, "")
    messages.check(err)
    assert spbench("results", "list")[0] == 0


def test_reindex_without_runs_exits_with_2(spbench, home):
    status, _, err = spbench("results", "reindex")
    assert (status, err) == (2, f"spbench: error: there are no runs under {home}\n")


def test_list_counts_passed_cases(spbench, home):
    record_finished_run(home)
    assert spbench("results", "list")[1].split()[-3:-1] == ["3/4", "made-up"]


# results prune


@pytest.fixture
def runs(home):
    """Record runs of 40, 30, 20 and 10 days ago."""
    names = []
    for days in (40, 30, 20, 10):
        start = time.time() - 86400 * days - 60
        folder = record_finished_run(home, console={"pid": 1, "host": "x", "started": start})
        folder.path.rename(folder.path.with_name(f"run-{99 - days}"))
        names.append(f"run-{99 - days}")
    return names


def list_remaining(home):
    return sorted(os.listdir(home / "runs"))


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (["--keep", "1"], 1),
        (["--keep", "9"], 4),
        (["--keep", "0"], 0),
        (["--older", "25d"], 2),
        (["--older", "5w"], 3),
        (["--older", "1h"], 0),
        (["--keep", "3", "--older", "1d"], 3),
        (["--keep", "1", "--older", "25d"], 2),
    ],
)
def test_prune_removes_old_runs(spbench, home, runs, args, count):
    spbench("results", "list")
    status, out, err = spbench("results", "prune", "--yes", *args)
    assert (status, err) == (0, "")
    expected = runs[len(runs) - count :]
    assert list_remaining(home) == expected
    removed = [line.split()[0] for line in out.splitlines() if line.startswith("run-")]
    assert removed == runs[: len(runs) - count]
    assert sorted(read_heads(home)) == expected
    assert not (home / "removed").exists()


def test_prune_reports_bytes(spbench, home, runs, messages):
    folder = home / "runs" / runs[0]
    for path in folder.rglob("*"):
        path.write_text("")
    (folder / "jobs").mkdir()
    (folder / "jobs" / "log").write_text("x" * 1234)
    (folder / "run.json").write_text("{}")
    _, out, _ = spbench("results", "prune", "--yes", "--keep", "3")
    assert out.splitlines()[0].split()[:3] == [runs[0], "1,236", "bytes"]
    messages.check(out.splitlines()[1:])


def test_prune_needs_a_confirmation(spbench, home, runs, monkeypatch):
    status, out, err = spbench("results", "prune", "--keep", "1")
    assert status == 2
    assert out.splitlines()[-1].startswith("3 runs, ")
    assert err.endswith("nothing was removed, since nobody can be asked here; add --yes\n")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question: False)
    assert spbench("results", "prune", "--keep", "1")[0] == 0
    assert list_remaining(home) == runs


def test_prune_keeps_active_runs_and_runs_of_baselines(spbench, home, runs, monkeypatch):
    path = home / "runs" / runs[1] / "run.json"
    path.write_text(json.dumps({"console": {"pid": 1}}))
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: None)
    (home / "baselines").mkdir()
    (home / "baselines" / "main.json").write_text(json.dumps({"run": runs[2]}))
    assert spbench("results", "prune", "--yes", "--keep", "0")[0] == 0
    assert list_remaining(home) == runs[1:3]


def test_prune_keeps_runs_resumed_during_the_prompt(spbench, home, runs, monkeypatch):
    def confirm():
        path = home / "runs" / runs[0] / "run.json"
        path.write_text(json.dumps({"console": {"pid": 1}}))
        return True

    monkeypatch.setattr("spbench.cli.records.upkeep._confirm", confirm)
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: True)
    assert spbench("results", "prune", "--keep", "2")[1].endswith("removed 1 run\n")
    assert list_remaining(home) == [runs[0], *runs[2:]]


def test_damaged_baseline_prevents_pruning(spbench, home, runs, messages):
    (home / "baselines").mkdir()
    (home / "baselines" / "main.json").write_text("{")
    status, out, err = spbench("results", "prune", "--yes", "--keep", "0")
    assert (status, out, list_remaining(home)) == (2, "", runs)
    messages.check(err)


@pytest.mark.parametrize(
    ("args", "message"),
    [([], "--keep N, --older 30d or both"), (["--older", "soon"], "'soon' is no age")],
)
def test_prune_rejects_missing_or_invalid_options(spbench, home, runs, args, message):
    status, _, err = spbench("results", "prune", "--yes", *args)
    assert (status, list_remaining(home)) == (2, runs)
    assert message in err


def test_prune_completes_an_interrupted_removal(spbench, home, runs):
    (home / "removed" / "run-1").mkdir(parents=True)
    spbench("results", "prune", "--yes", "--keep", "3")
    assert not (home / "removed").exists()
