"""What the unit tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def nobodys_home(tmp_path_factory, monkeypatch):
    """No profile of the user's: login shells read it, and pyenv's locks out a second one."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp()))
