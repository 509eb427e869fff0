"""Steps in the history of a metric: planted ones are found, and chance makes few."""

import random

import pytest

from spbench.stats.change_points import LEVEL
from spbench.stats.change_points import find_steps as steps_beyond

UP_AND_DOWN = ((12, 1.0), (12, 1.3), (12, 1.0))


def steps(values):
    """The steps of more than 2 %."""
    return steps_beyond(values, 0.02)


def runs(seed, *levels, noise=0.03):
    """Values of runs: so many of each level, with noise."""
    chance = random.Random(seed)
    return [level * (1 + chance.gauss(0, noise)) for count, level in levels for _ in range(count)]


@pytest.mark.parametrize("factor", [1.15, 0.85])
@pytest.mark.parametrize("counts", [(10, 10), (15, 6), (6, 15)])
def test_a_planted_step_is_found_where_it_was(counts, factor):
    for seed in range(10):
        found = steps(runs(seed, (counts[0], 1.0), (counts[1], factor)))
        nearest = min(found, key=lambda step: abs(step.index - counts[0]))
        assert abs(nearest.index - counts[0]) <= 2
        assert nearest.ratio == pytest.approx(factor, rel=0.06)


def test_a_step_up_and_one_down_do_not_hide_each_other():
    hits = 0
    for seed in range(10):
        found = [(step.index, round(step.ratio, 1)) for step in steps(runs(seed, *UP_AND_DOWN))]
        hits += found == [(12, 1.3), (24, 0.8)]
    assert hits >= 6


def test_chance_makes_steps_as_seldom_as_is_said():
    alarms = sum(bool(steps(runs(seed, (20, 1.0), noise=0.1))) for seed in range(200))
    assert alarms <= 200 * 3 * LEVEL


def test_one_slow_run_is_no_step():
    assert steps([*runs(1, (10, 1.0)), 1.9, *runs(2, (10, 1.0))]) == []


def test_a_difference_without_interest_is_no_step():
    assert steps(runs(1, (20, 1.0), (20, 1.015), noise=0.001)) == []
    assert len(steps(runs(1, (20, 1.0), (20, 1.03), noise=0.001))) == 1


@pytest.mark.parametrize("count", range(10))
def test_few_or_equal_runs_have_none(count):
    assert steps([1.0] * count) == []
    assert steps([1.0] * (count // 2) + [2.0] * (count - count // 2)) == []
