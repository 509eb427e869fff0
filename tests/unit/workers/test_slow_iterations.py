"""An injected slowdown: iterations take a multiple of their time with a busy core."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from spbench_workers import faults
from support.recording_context import make_context


@pytest.fixture
def clock(monkeypatch):
    """Replace the time by a clock that each reading advances by 1 ms."""
    readings = iter(range(1_000_000))
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings) / 1000)
    return readings


def test_an_iteration_takes_the_factor_longer(clock):
    starts = []

    def body():
        starts.append(next(clock))
        for _ in range(97):
            next(clock)

    slower = faults.inject_fault("slow", body, 0.1, 1.5)
    for _ in range(5):
        slower()
    lengths = [after - before for before, after in pairwise(starts)]
    assert lengths == pytest.approx([150] * 4, abs=3)


def test_the_core_is_busy_during_a_slowdown():
    def body():
        deadline = time.process_time() + 0.05
        while time.process_time() < deadline:
            pass

    started = time.process_time()
    faults.inject_fault("slow", body, 0.0, 2.0)()
    assert time.process_time() - started > 0.07


def test_only_an_injected_slowdown_changes_an_iteration():
    def body():
        pass

    assert make_context("memory.copy", "slow=1.1").with_fault(body, 0.1) is not body
    assert make_context("memory.copy", "corrupt-copy").with_fault(body, 0.1) is body
    assert make_context("memory.copy").with_fault(body, 0.1) is body
