"""Fixtures of the tests that drive the console."""

from __future__ import annotations

from pathlib import Path

import pytest

from spbench.engine.run_estimate import RunEstimate
from support.paths import ROOT
from support.tui.recorded_pages import make_recorded_folder
from support.tui.results_page import record_three_runs
from support.tui.suites_page import write_suite

ARTEFACTS = ROOT / "test-artefacts"


@pytest.fixture
def artefacts() -> Path:
    """Return a folder for snapshots that are kept after the tests."""
    ARTEFACTS.mkdir(exist_ok=True)
    return ARTEFACTS


@pytest.fixture(autouse=True)
def no_animation(monkeypatch):
    """Turn off the blinking cursor and animations."""
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    from textual.widgets import Input, TextArea

    monkeypatch.setattr(Input, "cursor_blink", False, raising=False)
    monkeypatch.setattr(TextArea, "cursor_blink", False, raising=False)


@pytest.fixture(autouse=True)
def failures_end_the_test(monkeypatch):
    """Let an error in a page end the console, and thus the test."""
    from spbench.tui.app import ConsoleApp

    monkeypatch.setattr(ConsoleApp, "CONTAINS_FAILURES", False)


@pytest.fixture(autouse=True)
def case_estimates(monkeypatch):
    """Replace estimates, which depend on the machine.

    A test can add the estimates of its cases.
    """
    cases = {}

    def estimate(plan, home):
        names = [case.id for job in plan.jobs for case in job.cases]
        return RunEstimate({name: cases[name] for name in names if name in cases})

    monkeypatch.setattr("spbench.tui.suites.parsed_suite._estimate_plan", estimate)
    return cases


@pytest.fixture
def home(tmp_path):
    """Make a folder of three recorded runs."""
    return record_three_runs(tmp_path / "home")


@pytest.fixture
def recorded_folder(tmp_path, monkeypatch):
    """Make a folder that gives the same pages on every machine."""
    return make_recorded_folder(tmp_path, monkeypatch)


@pytest.fixture
def suite(tmp_path):
    """Write a synthetic suite and return its path."""
    return write_suite(tmp_path)


def pytest_collection_modifyitems(items):
    """Mark all of these tests, and repetitions on a large terminal as long."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("screen")
            if "[size1]" in item.name or "-size1]" in item.name:
                item.add_marker("long")
