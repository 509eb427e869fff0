"""Fixtures of all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest

from running import kill_leftovers


def pytest_configure() -> None:
    """Forget the size of a terminal that xdist's workers do not have: programs would believe it."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import what the tests import, all of which stays, without looking for garbage among it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        if "torch" in sys.modules:
            # Tests have small tensors, and run beside each other.
            sys.modules["torch"].set_num_threads(1)


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    yield
    kill_leftovers()
