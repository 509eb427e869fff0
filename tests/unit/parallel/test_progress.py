"""Progress of phases: the reports and their rate."""

import pytest

from spbench_parallel import progress as module
from spbench_parallel.progress import NO_PROGRESS, PhaseProgress


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


@pytest.fixture
def reports():
    return []


def start_progress(reports, total=None):
    return PhaseProgress(lambda done, total: reports.append((done, total)), total)


def test_reports_the_start_and_the_end(clock, reports):
    progress = start_progress(reports, 3)
    progress.advance()
    progress.finish()
    assert reports == [(0, 3), (3, 3)]


def test_reports_at_most_ten_times_per_second(clock, reports):
    progress = start_progress(reports, 100)
    for _ in range(16):
        clock.now += 0.0625
        progress.advance()
    assert reports == [(0, 100), *((done, 100) for done in range(2, 17, 2))]


def test_reports_a_phase_of_unknown_length_at_its_start(clock, reports):
    progress = start_progress(reports)
    assert reports == []
    progress.begin(2)
    assert reports == [(0, 2)]


def test_fractions_of_steps_add_up_to_whole_ones(clock, reports):
    progress = start_progress(reports, 2)
    for _ in range(4):
        progress.advance(0.25)
    clock.now += 1.0
    progress.advance(0.25)
    assert reports[-1] == (1, 2)


def test_limits_steps_to_the_total(clock, reports):
    progress = start_progress(reports, 2)
    clock.now += 1.0
    progress.advance(7)
    assert reports[-1] == (2, 2)
    progress.lengthen(3)
    clock.now += 1.0
    progress.reach(4)
    assert reports[-1] == (4, 5)


def test_no_progress_accepts_steps():
    NO_PROGRESS.begin(3)
    NO_PROGRESS.advance()


def test_reports_no_end_of_a_phase_that_did_not_start(clock, reports):
    start_progress(reports).finish()
    assert reports == []
