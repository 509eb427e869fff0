"""Timing of alternatives: medians over rounds, slowest rank, time limit."""

from types import SimpleNamespace

import pytest

from spbench_parallel.alternatives import time_alternatives
from spbench_parallel.progress import NO_PROGRESS


class Runs:
    """Alternatives that take listed seconds and note the order in which they run."""

    def __init__(self, **seconds):
        self.order = []
        self.seconds = {name: iter(times) for name, times in seconds.items()}

    def alternatives(self):
        return {name: lambda name=name: self.run(name) for name in self.seconds}

    def run(self, name):
        self.order.append(name)
        return next(self.seconds[name])


class Steps:
    def __init__(self):
        self.done = 0.0

    def begin(self, total):
        pass

    def advance(self, steps=1):
        self.done += steps


def test_reports_the_median_without_warm_up():
    runs = Runs(a=[9.0, 1.0, 3.0, 2.0], b=[0.0, 5.0, 4.0, 6.0])
    assert time_alternatives(runs.alternatives(), rounds=3) == {"a": 2.0, "b": 5.0}
    assert runs.order == ["a", "b"] * 4


def test_runs_alternatives_in_sequence_if_not_interleaved():
    runs = Runs(a=[9.0, 1.0, 3.0], b=[9.0, 5.0, 4.0])
    times = time_alternatives(runs.alternatives(), rounds=2, interleaved=False)
    assert times == {"a": 2.0, "b": 4.5}
    assert runs.order == ["a"] * 3 + ["b"] * 3


def test_starts_no_round_after_max_seconds():
    runs = Runs(a=[1.0] * 9, b=[2.0] * 9)
    assert time_alternatives(runs.alternatives(), rounds=8, max_seconds=5.0) == {"a": 1, "b": 2}
    assert runs.order == ["a", "b"] * 3


@pytest.mark.parametrize("interleaved", [True, False])
def test_times_each_alternative_at_least_once(interleaved):
    runs = Runs(a=[1.0] * 9, b=[2.0] * 9)
    alternatives = runs.alternatives()
    times = time_alternatives(alternatives, rounds=8, max_seconds=0.0, interleaved=interleaved)
    assert times == {"a": 1, "b": 2}


def test_a_round_takes_the_time_of_the_slowest_rank():
    pytest.importorskip("mpi4py")
    other_ranks = iter([0.0, 7.0, 0.5])
    comm = SimpleNamespace(allreduce=lambda value, op: max(value, next(other_ranks)))
    runs = Runs(a=[1.0, 1.0, 1.0])
    assert time_alternatives(runs.alternatives(), rounds=2, comm=comm) == {"a": 4.0}


@pytest.mark.parametrize("interleaved", [True, False])
def test_progress_counts_rounds_of_all_alternatives(interleaved):
    steps = Steps()
    runs = Runs(a=[1.0] * 4, b=[1.0] * 4)
    time_alternatives(
        runs.alternatives(), rounds=3, interleaved=interleaved, progress=steps, steps=2
    )
    assert steps.done == pytest.approx(8)
    time_alternatives(Runs(a=[1.0]).alternatives(), rounds=1, warm_up=0, progress=NO_PROGRESS)
