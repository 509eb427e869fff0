"""Commands that keep a home's runs: the index is made again, old runs are removed."""

import json
import os
import sqlite3
import time

import pytest

from spbench.record.runs.folder import RunFolder
from spbench.record.runs.index import read_heads
from unit.events import recorded, whole_run


def ended(home, **changes):
    fields = {"verdict": "passed", "exit_code": 0, "counts": {"passed": 3, "failed": 1}}
    return recorded(home, whole_run(), **fields | changes)


def test_the_index_is_made_again(spbench, home):
    ended(home)
    (home / "index.sqlite").write_text("damaged")
    assert spbench("results", "reindex") == (0, f"runs in the index of {home}: 1\n", "")
    rows = sqlite3.connect(home / "index.sqlite").execute("SELECT COUNT(*) FROM runs").fetchall()
    assert rows == [(1,)]


def test_an_index_that_cannot_be_made_is_told(spbench, home):
    ended(home)
    (home / "index.sqlite").mkdir()
    status, out, err = spbench("results", "reindex")
    assert (status, out) == (4, "")
    assert "the index cannot be written" in err
    assert "cannot be removed; runs are listed without it" in err
    assert spbench("results", "list")[0] == 0


def test_there_is_no_index_of_no_runs(spbench, home):
    status, _, err = spbench("results", "reindex")
    assert (status, err) == (2, f"spbench: error: there are no runs under {home}\n")


def test_the_list_tells_how_many_cases_passed(spbench, home):
    ended(home)
    assert spbench("results", "list")[1].split()[-3:-1] == ["3/4", "made-up"]


# results prune


@pytest.fixture
def runs(home):
    """Runs of 40, 30, 20 and 10 days ago."""
    found = []
    for days in (40, 30, 20, 10):
        begun = time.time() - 86400 * days - 60
        folder = ended(home, console={"pid": 1, "host": "x", "started": begun})
        folder.path.rename(folder.path.with_name(f"run-{99 - days}"))
        found.append(f"run-{99 - days}")
    return found


def left(home):
    return sorted(os.listdir(home / "runs"))


@pytest.mark.parametrize(
    ("words", "stay"),
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
def test_old_runs_go(spbench, home, runs, words, stay):
    spbench("results", "list")
    status, out, err = spbench("results", "prune", "--yes", *words)
    assert (status, err) == (0, "")
    kept = runs[len(runs) - stay :]
    assert left(home) == kept
    gone = [line.split()[0] for line in out.splitlines() if line.startswith("run-")]
    assert gone == runs[: len(runs) - stay]
    assert sorted(read_heads(home)) == kept
    assert not (home / "removed").exists()


def test_what_goes_is_told_in_bytes(spbench, home, runs):
    folder = home / "runs" / runs[0]
    for path in folder.rglob("*"):
        path.write_text("")
    (folder / "jobs").mkdir()
    (folder / "jobs" / "log").write_text("x" * 1234)
    (folder / "run.json").write_text("{}")
    _, out, _ = spbench("results", "prune", "--yes", "--keep", "3")
    assert out.splitlines()[0].split()[:3] == [runs[0], "1,236", "bytes"]
    assert out.splitlines()[1:] == ["1 run, 1,236 bytes", "removed 1 run"]


def test_without_a_yes_nothing_goes(spbench, home, runs, monkeypatch):
    status, out, err = spbench("results", "prune", "--keep", "1")
    assert status == 2
    assert out.splitlines()[-1].startswith("3 runs, ")
    assert err.endswith("nothing was removed, since nobody can be asked here; add --yes\n")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question: False)
    assert spbench("results", "prune", "--keep", "1")[0] == 0
    assert left(home) == runs


def test_a_run_that_goes_on_or_that_a_baseline_needs_stays(spbench, home, runs, monkeypatch):
    going = home / "runs" / runs[1] / "run.json"
    going.write_text(json.dumps({"console": {"pid": 1}}))
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: None)
    (home / "baselines").mkdir()
    (home / "baselines" / "main.json").write_text(json.dumps({"run": runs[2]}))
    assert spbench("results", "prune", "--yes", "--keep", "0")[0] == 0
    assert left(home) == runs[1:3]


def test_a_run_that_has_begun_to_go_on_since_it_was_told_stays(spbench, home, runs, monkeypatch):
    def agreed():
        going = home / "runs" / runs[0] / "run.json"
        going.write_text(json.dumps({"console": {"pid": 1}}))
        return True

    monkeypatch.setattr("spbench.cli.records.upkeep._confirm", agreed)
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: True)
    assert spbench("results", "prune", "--keep", "2")[1].endswith("removed 1 run\n")
    assert left(home) == [runs[0], *runs[2:]]


def test_a_damaged_baseline_lets_nothing_go(spbench, home, runs):
    (home / "baselines").mkdir()
    (home / "baselines" / "main.json").write_text("{")
    status, out, err = spbench("results", "prune", "--yes", "--keep", "0")
    assert (status, out, left(home)) == (2, "", runs)
    assert "main.json cannot be read" in err


@pytest.mark.parametrize(
    ("words", "named"),
    [([], "--keep N, --older 30d or both"), (["--older", "soon"], "'soon' is no age")],
)
def test_what_prune_is_not_told_or_cannot_read_is_2(spbench, home, runs, words, named):
    status, _, err = spbench("results", "prune", "--yes", *words)
    assert (status, left(home)) == (2, runs)
    assert named in err


def test_what_a_kill_left_of_a_removal_goes_with_the_next(spbench, home, runs):
    (home / "removed" / "run-1").mkdir(parents=True)
    spbench("results", "prune", "--yes", "--keep", "3")
    assert not (home / "removed").exists()
