"""What the unit tests share."""

from __future__ import annotations

import functools

import pytest
import typer.main


@pytest.fixture(scope="module", autouse=True)
def nobodys_home(tmp_path_factory):
    """No profile of the user's: login shells read it, and pyenv's locks out a second one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.getbasetemp()))
        yield


@pytest.fixture(scope="module", autouse=True)
def commands_made_once():
    """A process makes its commands once, as a user's does; here it runs hundreds of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield
