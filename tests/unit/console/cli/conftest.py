"""Fixtures that run commands in this process, with a temporary home."""

from __future__ import annotations

import sys

import pytest

from spbench.cli.app import run_command_line
from support.commands import CommandResult


@pytest.fixture
def home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("SPBENCH_HOME", str(home))
    return home


@pytest.fixture
def spbench(home, capsys, monkeypatch):
    """Return a function that runs a command and returns its exit code and output."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["spbench", *args])
        status = run_command_line(list(args))
        return CommandResult(status, *capsys.readouterr())

    return run
