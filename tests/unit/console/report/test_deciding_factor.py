"""The factor that decides if there are too few launches for a test."""

from __future__ import annotations

from math import exp
from random import Random

import pytest
from scipy.stats import t

from spbench.report.comparison import deciding_factor as module
from spbench.report.comparison.deciding_factor import (
    DEFAULT_FACTOR,
    MIN_FACTOR,
    estimate_deciding_factor,
)


def test_quantiles_are_those_of_students_t_distribution() -> None:
    for degrees, quantile in module._QUANTILES.items():
        assert quantile == pytest.approx(t.ppf(0.9995, degrees), abs=6e-4)


def test_few_recorded_launches_give_a_constant_of_at_least_3() -> None:
    assert DEFAULT_FACTOR >= 3
    for recorded in ([], [1.0], [1.0, 1.01, 1.02, 1.03]):
        assert estimate_deciding_factor(recorded).value == DEFAULT_FACTOR
    assert estimate_deciding_factor([1.0, 40.0]).value == pytest.approx(40.0)


def test_steady_launches_give_the_least_factor() -> None:
    assert estimate_deciding_factor([1.0] * 5).value == MIN_FACTOR
    assert estimate_deciding_factor([1.0 + n / 1000 for n in range(30)]).value == MIN_FACTOR


def test_factor_covers_the_range_of_recorded_launches() -> None:
    assert estimate_deciding_factor([1.0] * 200 + [7.0]).value == pytest.approx(7.0)


def test_extreme_launches_give_a_finite_factor() -> None:
    assert estimate_deciding_factor([1e-300, 1.0, 1e300, 1.0, 1.0]).value < float("inf")


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [5, 10, 35])
def test_further_launches_exceed_the_factor_in_at_most_1_of_500(recorded: int) -> None:
    random_source = Random(recorded)

    def launch() -> float:
        return exp(random_source.gauss(0.0, 0.3))

    exceeded = 0
    for _ in range(5000):
        factor = estimate_deciding_factor([launch() for _ in range(recorded)]).value
        exceeded += not 1 / factor <= launch() / launch() <= factor
    assert exceeded <= 10
