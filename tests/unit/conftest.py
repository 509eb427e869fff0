"""Fixtures of the unit tests."""

from __future__ import annotations

import functools

import pytest
import typer.main


@pytest.fixture(scope="module", autouse=True)
def no_profile(empty_home):
    """Keep programs that tests start from reading the user's profile."""


@pytest.fixture
def python_next_to_mpirun(tmp_path):
    """Return the path of an interpreter next to an mpirun.

    This mpirun only prints its version.
    """
    mpirun = tmp_path / "venv/mpirun"
    mpirun.parent.mkdir()
    mpirun.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    mpirun.chmod(0o755)
    return tmp_path / "venv/python"


@pytest.fixture(scope="module", autouse=True)
def cached_commands():
    """Build the commands once per process, since tests run hundreds of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield
