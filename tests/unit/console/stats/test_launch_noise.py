"""The noise of launches, and what is drawn with it."""

from __future__ import annotations

import math
from random import Random
from statistics import pstdev

import pytest

from spbench.stats.launch_noise import estimate_noise

SPREAD = 0.05


def drawn(runs: list[list[float]], launches: int, count: int = 4000) -> list[list[float]]:
    """Runs drawn with the noise of others, as logarithms."""
    noise = estimate_noise(runs)
    chance = Random(2)
    assert noise is not None
    return [list(map(math.log, noise.draw(chance, launches).medians)) for _ in range(count)]


def made(runs: int, launches: int, between: float, within: float) -> list[list[float]]:
    chance = Random(1)
    levels = [chance.gauss(0.0, between) for _ in range(runs)]
    return [[math.exp(chance.gauss(one, within)) for _ in range(launches)] for one in levels]


def test_nothing_is_known_of_one_launch() -> None:
    assert estimate_noise([[2.0]]) is None


@pytest.mark.parametrize("runs", [made(1, 400, 0.0, SPREAD), made(400, 1, 0.0, SPREAD)])
def test_launches_differ_as_those_that_were_recorded(runs: list[list[float]]) -> None:
    """Of one run, or of runs of one launch each, which cannot be told apart."""
    launches = [each for run in drawn(runs, 3) for each in run]
    assert pstdev(launches) == pytest.approx(SPREAD, rel=0.1)


@pytest.mark.parametrize("between", [0.0, SPREAD, 4 * SPREAD])
def test_runs_differ_no_more_than_those_that_were_recorded(between: float) -> None:
    """What launches add to the medians of their runs is not counted twice."""
    runs = drawn(made(300, 5, between, SPREAD), 5)
    levels = [sum(run) / len(run) for run in runs]
    assert pstdev(levels) == pytest.approx(math.hypot(between, SPREAD / math.sqrt(5)), rel=0.15)
    within = [pstdev(run) * math.sqrt(5 / 4) for run in runs]
    assert sum(within) / len(within) == pytest.approx(SPREAD, rel=0.15)


def test_the_fastest_iterations_differ_as_those_that_were_recorded() -> None:
    """And each with the median of its own launch, whose noise is not theirs."""
    chance = Random(1)
    quick = [math.exp(chance.gauss(-1.0, SPREAD / 5)) for _ in range(400)]
    [medians] = made(1, 400, 0.0, SPREAD)
    noise = estimate_noise([medians], quick)
    assert noise is not None
    launches = noise.draw(Random(2), 4000)
    assert pstdev(map(math.log, launches.fastest)) == pytest.approx(SPREAD / 5, rel=0.1)
    assert pstdev(map(math.log, launches.medians)) == pytest.approx(SPREAD, rel=0.1)


def test_fastest_iterations_of_earlier_runs_differ_as_their_medians() -> None:
    noise = estimate_noise([[1.0, 1.1], [2.0, 2.3]], [0.9, 0.91])
    assert noise is not None
    assert noise.fastest[2:] == noise.residuals[2:]
    assert noise.fastest[:2] != noise.residuals[:2]
