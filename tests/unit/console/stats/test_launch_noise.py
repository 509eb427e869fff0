"""Tests of the noise of launches, and of samples drawn with it."""

from __future__ import annotations

import math
from random import Random
from statistics import pstdev

import pytest

from spbench.stats.launch_noise import estimate_noise

SPREAD = 0.05


def draw_logarithms(runs: list[list[float]], launches: int, count: int = 4000) -> list[list[float]]:
    """Return logarithms of runs drawn with the noise of these runs."""
    noise = estimate_noise(runs)
    chance = Random(2)
    assert noise is not None
    return [list(map(math.log, noise.draw(chance, launches).medians)) for _ in range(count)]


def build_runs(runs: int, launches: int, between: float, within: float) -> list[list[float]]:
    chance = Random(1)
    levels = [chance.gauss(0.0, between) for _ in range(runs)]
    return [[math.exp(chance.gauss(level, within)) for _ in range(launches)] for level in levels]


def test_single_launch_has_no_noise() -> None:
    assert estimate_noise([[2.0]]) is None


@pytest.mark.parametrize("runs", [build_runs(1, 400, 0.0, SPREAD), build_runs(400, 1, 0.0, SPREAD)])
def test_drawn_launches_have_the_recorded_spread(runs: list[list[float]]) -> None:
    """One run, and runs of one launch each, are indistinguishable."""
    launches = [launch for run in draw_logarithms(runs, 3) for launch in run]
    assert pstdev(launches) == pytest.approx(SPREAD, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, SPREAD, 4 * SPREAD])
def test_drawn_runs_have_the_recorded_spread(between: float) -> None:
    """The share of launches in the medians of their runs is not counted twice."""
    runs = draw_logarithms(build_runs(300, 5, between, SPREAD), 5)
    levels = [sum(run) / len(run) for run in runs]
    assert pstdev(levels) == pytest.approx(math.hypot(between, SPREAD / math.sqrt(5)), rel=0.15)
    within = [pstdev(run) * math.sqrt(5 / 4) for run in runs]
    assert sum(within) / len(within) == pytest.approx(SPREAD, rel=0.15)


def test_drawn_fastest_iterations_have_the_recorded_spread() -> None:
    """The medians of the same launches keep their different noise."""
    chance = Random(1)
    quick = [math.exp(chance.gauss(-1.0, SPREAD / 5)) for _ in range(400)]
    [medians] = build_runs(1, 400, 0.0, SPREAD)
    noise = estimate_noise([medians], quick)
    assert noise is not None
    launches = noise.draw(Random(2), 4000)
    assert pstdev(map(math.log, launches.fastest)) == pytest.approx(SPREAD / 5, rel=0.1)
    assert pstdev(map(math.log, launches.medians)) == pytest.approx(SPREAD, rel=0.1)


def test_earlier_fastest_iterations_vary_like_their_medians() -> None:
    noise = estimate_noise([[1.0, 1.1], [2.0, 2.3]], [0.9, 0.91])
    assert noise is not None
    assert noise.fastest[2:] == noise.residuals[2:]
    assert noise.fastest[:2] != noise.residuals[:2]
