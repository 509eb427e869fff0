"""The worst of several comparisons: error, tolerance, position and wrong elements."""

import math

import numpy as np
import pytest

from spbench_parallel.verify.worst_error import WorstError


def test_keeps_the_largest_excess_over_the_tolerance():
    worst = WorstError()
    for error, tolerance, detail in [
        (0.9, 1.0, "a"),
        (0.2, 0.1, "b"),
        (0.3, 0.2, "c"),
        (5, 9, "d"),
    ]:
        worst.add(error, tolerance, detail)
    assert (worst.error, worst.tolerance, worst.detail) == (0.2, 0.1, "b")
    assert worst.exceeds


def test_the_first_comparison_has_a_detail_without_an_error():
    worst = WorstError.single(0.0, 0.1, "somewhere")
    assert (worst.tolerance, worst.detail, worst.exceeds) == (0.1, "somewhere", False)


def test_only_larger_errors_replace_the_detail():
    worst = WorstError.with_tolerance(1.0)
    worst.add(0.0, 1.0, "right")
    assert (worst.error, worst.tolerance, worst.detail) == (0.0, 1.0, "")
    worst.add(0.5, 1.0, "half")
    assert (worst.error, worst.detail, worst.exceeds) == (0.5, "half", False)


@pytest.mark.parametrize(
    ("error", "tolerance"), [(math.nan, 0.1), (0.0, math.nan)], ids=["error", "tolerance"]
)
@pytest.mark.parametrize("keeps_first", [False, True])
def test_nan_exceeds_any_tolerance(error, tolerance, keeps_first):
    worst = WorstError(keeps_first=keeps_first)
    worst.add(error, tolerance, "not a number")
    worst.add(5.0, 0.0, "smaller than infinity")
    assert worst.exceeds
    allowed = 0.0 if math.isnan(tolerance) else tolerance
    assert (worst.error, worst.tolerance, worst.detail) == (math.inf, allowed, "not a number")


def test_keeps_the_first_excess_on_request():
    worst = WorstError(keeps_first=True)
    worst.add(0.1, 1.0, "small")
    worst.add(0.2, 5.0, "larger")
    assert worst.detail == "larger"
    worst.add(0.15, 0.1, "wrong")
    worst.add(9.0, 0.1, "wrong by more")
    assert (worst.error, worst.tolerance, worst.detail) == (0.15, 0.1, "wrong")


def test_counts_wrong_elements_and_keeps_the_worst():
    worst = WorstError()
    expected = np.zeros(4)
    tolerances = np.array([1.0, 0.1, 0.1, 0.1])
    worst.compare_arrays(np.array([0.9, 0.0, 0.2, 0.0]), expected, tolerances, "element {}".format)
    assert (worst.error, worst.tolerance, worst.detail) == (0.2, 0.1, "element 2")
    assert worst.wrong == 1
    worst.compare_arrays(np.zeros(4), expected, tolerances, "later {}".format)
    assert (worst.error, worst.wrong) == (0.2, 1)
    worst.compare_arrays(np.array([0, np.nan, 9, 0]), expected, tolerances, "then {}".format)
    assert (worst.error, worst.detail, worst.wrong) == (math.inf, "then 1", 3)
    worst.compare_arrays(np.zeros(0), np.zeros(0), np.zeros(0), str)
    assert worst.detail == "then 1"


def test_merge_adds_wrong_elements_and_skips_empty_errors():
    worst = WorstError()
    other = WorstError()
    worst.add(5.0, 1.0, "five", wrong=2)
    other.add(7.0, 1.0, "seven", wrong=3)
    worst.merge(WorstError())
    worst.merge(other)
    assert (worst.error, worst.detail, worst.wrong) == (7.0, "seven", 5)


def test_an_infinite_error_exceeds_an_infinite_tolerance():
    worst = WorstError.single(math.inf, math.inf, "everywhere")
    assert (worst.exceeds, worst.tolerance) == (True, 0.0)
