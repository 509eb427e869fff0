"""Fixtures of the tests of single families of benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_profile(empty_home: Path) -> None:
    """Let programs that tests start read no profile of the user."""
