"""A planted slowdown: each iteration takes so many times as long, and the core works."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from spbench_workers import faults
from unit.recorded import context_of


@pytest.fixture
def clock(monkeypatch):
    """A clock that each look moves on by 1 ms, in place of the time that passes."""
    looks = iter(range(1_000_000))
    monkeypatch.setattr(time, "perf_counter", lambda: next(looks) / 1000)
    return looks


def test_an_iteration_takes_so_many_times_as_long(clock):
    begun = []

    def body():
        begun.append(next(clock))
        for _ in range(97):
            next(clock)

    slower = faults.plant("slow", body, 0.1, 1.5)
    for _ in range(5):
        slower()
    lengths = [after - before for before, after in pairwise(begun)]
    assert lengths == pytest.approx([150] * 4, abs=3)


def test_its_core_is_busy_all_the_time():
    def body():
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass

    started = time.process_time()
    faults.plant("slow", body, 0.0, 2.0)()
    assert time.process_time() - started > 0.07


def test_only_a_planted_fault_changes_an_iteration():
    def body():
        pass

    assert context_of("memory.copy", "slow=1.1").with_fault(body, 0.1) is not body
    assert context_of("memory.copy", "corrupt-copy").with_fault(body, 0.1) is body
    assert context_of("memory.copy").with_fault(body, 0.1) is body
