"""Commands that keep a home's runs: the index is made again."""

import sqlite3

import pytest
import typer

from spbench.cli import results
from spbench.cli.app import run_command_line
from unit.events import recorded, whole_run


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def spbench(home, capsys, monkeypatch):
    """Run a command of recorded runs; return its exit code and what it wrote."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    results.register(app)
    monkeypatch.setattr("spbench.cli.app.app", app)
    monkeypatch.setenv("SPBENCH_HOME", str(home))

    def command(*words):
        status = run_command_line(list(words))
        return status, *capsys.readouterr()

    return command


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
    assert spbench("results", "list")[1].split()[-2:] == ["3/4", "made-up"]
