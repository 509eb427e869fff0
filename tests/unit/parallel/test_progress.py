"""Progress of phases: what is reported, and how often."""

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


def begin(reports, total=None):
    return PhaseProgress(lambda done, total: reports.append((done, total)), total)


def test_the_beginning_and_the_end_are_reported(clock, reports):
    progress = begin(reports, 3)
    progress.advance()
    progress.finish()
    assert reports == [(0, 3), (3, 3)]


def test_steps_are_reported_ten_times_a_second_at_most(clock, reports):
    progress = begin(reports, 100)
    for _ in range(16):
        clock.now += 0.0625
        progress.advance()
    assert reports == [(0, 100), *((done, 100) for done in range(2, 17, 2))]


def test_a_phase_of_unknown_length_is_reported_once_it_begins(clock, reports):
    progress = begin(reports)
    assert reports == []
    progress.begin(2)
    assert reports == [(0, 2)]


def test_fractions_of_steps_add_up_to_whole_ones(clock, reports):
    progress = begin(reports, 2)
    for _ in range(4):
        progress.advance(0.25)
    clock.now += 1.0
    progress.advance(0.25)
    assert reports[-1] == (1, 2)


def test_no_more_steps_are_done_than_there_are(clock, reports):
    progress = begin(reports, 2)
    clock.now += 1.0
    progress.advance(7)
    assert reports[-1] == (2, 2)
    progress.lengthen(3)
    clock.now += 1.0
    progress.reach(4)
    assert reports[-1] == (4, 5)


def test_a_task_that_nobody_watches_reports_nothing():
    NO_PROGRESS.begin(3)
    NO_PROGRESS.advance()


def test_the_end_of_a_phase_that_has_not_begun_is_not_reported(clock, reports):
    begin(reports).finish()
    assert reports == []
