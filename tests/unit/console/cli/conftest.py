"""Commands run in this process, in a home of the test's own."""

from __future__ import annotations

import sys

import pytest

from spbench.cli.app import run_command_line
from unit.done import Done


@pytest.fixture
def home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("SPBENCH_HOME", str(home))
    return home


@pytest.fixture
def spbench(home, capsys, monkeypatch):
    """Run a command; return its exit code and what it wrote."""

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["spbench", *words])
        status = run_command_line(list(words))
        return Done(status, *capsys.readouterr())

    return command
