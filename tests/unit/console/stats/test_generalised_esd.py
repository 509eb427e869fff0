"""Tests of the generalised ESD test against Rosner's example and its error rate."""

import random

import pytest

from spbench.stats.generalised_esd import (
    MIN_ESD_VALUES,
    compute_student_t_p_value,
    find_large_outliers,
)

ROSNER = [
    *(-0.25, 0.68, 0.94, 1.15, 1.20, 1.26, 1.26, 1.34, 1.38, 1.43, 1.49, 1.49, 1.55, 1.56),
    *(1.58, 1.65, 1.69, 1.70, 1.76, 1.77, 1.81, 1.91, 1.94, 1.96, 1.99, 2.06, 2.09, 2.10),
    *(2.14, 2.15, 2.23, 2.24, 2.26, 2.35, 2.37, 2.40, 2.47, 2.54, 2.62, 2.64, 2.90, 2.92),
    *(2.92, 2.93, 3.21, 3.26, 3.30, 3.59, 3.68, 4.30, 4.64, 5.34, 5.42, 6.01),
]


def draw_values(seed, count=60):
    draw = random.Random(seed)
    return {number: draw.gauss(0.0, 0.05) for number in range(count)}


def test_finds_the_three_outliers_of_rosners_example():
    outliers = find_large_outliers(dict(enumerate(ROSNER)), 0.05)
    assert sorted(outliers) == [51, 52, 53]


@pytest.mark.parametrize(
    ("square", "freedom", "p_value"),
    [(100.0, 5, 0.0001709475), (25.0, 300, 9.769155e-07), (30.0, 44_000, 4.344064e-08)],
)
def test_p_value_matches_students_t(square, freedom, p_value):
    assert compute_student_t_p_value(square, freedom) == pytest.approx(p_value, rel=1e-5)


def test_false_outliers_are_rare():
    assert sum(bool(find_large_outliers(draw_values(seed), 0.01)) for seed in range(400)) <= 8


def test_several_outliers_do_not_mask_each_other():
    values = draw_values(1) | {number: 1.0 + number / 100 for number in range(7)}
    assert set(find_large_outliers(values, 0.001)) == set(range(7))


def test_small_values_are_neither_reported_nor_mask_others():
    values = draw_values(2) | {3: 1.0, 4: -5.0, 5: -5.0}
    assert set(find_large_outliers(values, 0.001)) == {3}


def test_half_of_the_values_are_not_outliers():
    values = {number: value + (number % 2) for number, value in draw_values(3).items()}
    assert find_large_outliers(values, 0.001) == {}


def test_too_few_values_have_no_outlier():
    assert (
        find_large_outliers(
            {number: float(number == 0) for number in range(MIN_ESD_VALUES - 1)}, 0.5
        )
        == {}
    )


def test_equal_values_have_no_outlier():
    assert find_large_outliers(dict.fromkeys(range(20), 0.3), 0.5) == {}


def test_value_that_differs_from_equal_values_is_an_outlier():
    assert find_large_outliers(dict.fromkeys(range(20), 0.3) | {7: 0.5}, 0.001) == {
        7: pytest.approx(0.2)
    }
