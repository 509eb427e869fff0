"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from running import kill_leftovers


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    yield
    kill_leftovers()
