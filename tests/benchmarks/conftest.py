"""Fixtures of the tests of benchmark families."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_profile(empty_home: Path) -> None:
    """Hide the user's profile from programs that tests start."""
