"""Tests of finding steps in the history of a metric, and of false alarms."""

import random

import pytest

from spbench.stats.change_points import SIGNIFICANCE_LEVEL
from spbench.stats.change_points import find_steps as find_steps_beyond

UP_AND_DOWN = ((12, 1.0), (12, 1.3), (12, 1.0))


def find_large_steps(values):
    """Return the steps of more than 2 %."""
    return find_steps_beyond(values, 0.02)


def draw_runs(seed, *levels, noise=0.03):
    """Return values of runs at levels (count, value), with noise."""
    chance = random.Random(seed)
    return [level * (1 + chance.gauss(0, noise)) for count, level in levels for _ in range(count)]


@pytest.mark.parametrize("factor", [1.15, 0.85])
@pytest.mark.parametrize("counts", [(10, 10), (15, 6), (6, 15)])
def test_planted_step_is_found_at_its_run(counts, factor):
    for seed in range(10):
        detected = find_large_steps(draw_runs(seed, (counts[0], 1.0), (counts[1], factor)))
        nearest = min(detected, key=lambda step: abs(step.index - counts[0]))
        assert abs(nearest.index - counts[0]) <= 2
        assert nearest.ratio == pytest.approx(factor, rel=0.06)


def test_opposite_steps_do_not_hide_each_other():
    hits = 0
    for seed in range(10):
        detected = [
            (step.index, round(step.ratio, 1))
            for step in find_large_steps(draw_runs(seed, *UP_AND_DOWN))
        ]
        hits += detected == [(12, 1.3), (24, 0.8)]
    assert hits >= 6


def test_false_alarms_are_below_the_level():
    alarms = sum(
        bool(find_large_steps(draw_runs(seed, (20, 1.0), noise=0.1))) for seed in range(200)
    )
    assert alarms <= 200 * 3 * SIGNIFICANCE_LEVEL


def test_single_slow_run_is_not_a_step():
    assert find_large_steps([*draw_runs(1, (10, 1.0)), 1.9, *draw_runs(2, (10, 1.0))]) == []


def test_small_difference_is_not_a_step():
    assert find_large_steps(draw_runs(1, (20, 1.0), (20, 1.015), noise=0.001)) == []
    assert len(find_large_steps(draw_runs(1, (20, 1.0), (20, 1.03), noise=0.001))) == 1


@pytest.mark.parametrize("count", range(10))
def test_few_or_equal_runs_have_no_step(count):
    assert find_large_steps([1.0] * count) == []
    assert find_large_steps([1.0] * (count // 2) + [2.0] * (count - count // 2)) == []
