"""The factor that decides where there are too few launches for a test."""

from __future__ import annotations

from math import exp
from random import Random

import pytest
from scipy.stats import t

from spbench.report.comparison import deciding_factor as module
from spbench.report.comparison.deciding_factor import DEFAULT_FACTOR, LEAST_FACTOR, deciding_factor


def test_the_quantiles_are_those_of_students_distribution() -> None:
    for degrees, quantile in module._QUANTILES.items():
        assert quantile == pytest.approx(t.ppf(0.9995, degrees), abs=6e-4)


def test_with_few_recorded_launches_it_is_a_constant_of_at_least_3() -> None:
    assert DEFAULT_FACTOR >= 3
    for recorded in ([], [1.0], [1.0, 1.01, 1.02, 1.03]):
        assert deciding_factor(recorded).value == DEFAULT_FACTOR
    assert deciding_factor([1.0, 40.0]).value == pytest.approx(40.0)


def test_steady_launches_do_not_support_less_than_a_least_factor() -> None:
    assert deciding_factor([1.0] * 5).value == LEAST_FACTOR
    assert deciding_factor([1.0 + n / 1000 for n in range(30)]).value == LEAST_FACTOR


def test_it_is_no_less_than_what_recorded_launches_differ_by() -> None:
    assert deciding_factor([1.0] * 200 + [7.0]).value == pytest.approx(7.0)


def test_launches_that_differ_by_orders_of_magnitude_are_a_finite_factor() -> None:
    assert deciding_factor([1e-300, 1.0, 1e300, 1.0, 1.0]).value < float("inf")


@pytest.mark.parametrize("recorded", [5, 10, 35])
def test_two_further_launches_differ_by_more_in_at_most_1_of_500(recorded: int) -> None:
    chance = Random(recorded)

    def launch() -> float:
        return exp(chance.gauss(0.0, 0.3))

    beyond = 0
    for _ in range(5000):
        factor = deciding_factor([launch() for _ in range(recorded)]).value
        beyond += not 1 / factor <= launch() / launch() <= factor
    assert beyond <= 10
