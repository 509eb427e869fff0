"""Fixtures of all tests."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from running import kill_leftovers

# How long an example takes says nothing of what is tested, and much of what else the cores do.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Forget the size of a terminal that xdist's workers do not have: programs would believe it."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Ranks of other tests are on the same cores: who waits for a message must give way.
        os.environ.update(OMPI_MCA_mpi_yield_when_idle="1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores: tests with ranks wait for a launch half of their time."""
    return min(4, len(os.sched_getaffinity(0)) + 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give each process of ``--dist loadscope`` all tests that share something."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return sharing(nodeid)

    return Scheduling(config, log)


def sharing(nodeid: str) -> str:
    """Return the name that is the same for all tests that run in one process.

    It is the file; of tests that start ranks and share nothing it is the test alone, and of the
    commands of the docs their page.
    """
    path = nodeid.partition("::")[0]
    if page := re.search(r"-\w+\.md\]$", nodeid):
        return f"{path}{page[0]}"
    return nodeid if _shares_nothing(path) else path


@cache
def _shares_nothing(path: str) -> bool:
    text = (Path(__file__).parents[1] / path).read_text()
    return "mark.mpi" in text and 'scope="module"' not in text


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
