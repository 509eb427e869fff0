"""Fixtures of the unit tests."""

from __future__ import annotations

import functools

import pytest
import typer.main


@pytest.fixture(scope="module", autouse=True)
def no_profile(empty_home):
    """Let programs that tests start read no profile of the user."""


@pytest.fixture
def python_beside_mpirun(tmp_path):
    """The path of an interpreter, beside which there is an mpirun that only tells its version."""
    mpirun = tmp_path / "venv/mpirun"
    mpirun.parent.mkdir()
    mpirun.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    mpirun.chmod(0o755)
    return tmp_path / "venv/python"


@pytest.fixture(scope="module", autouse=True)
def commands_made_once():
    """A process makes its commands once, as a user's does; here it runs hundreds of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield
