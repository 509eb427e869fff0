"""The overall result of a comparison: mean ratio and sums of times."""

import pytest

from spbench.report.comparison.compare import compare
from spbench.report.comparison.model import compute_overall
from spbench.report.comparison.notes import comparison_notes
from spbench.report.export import comparison_object
from support.sample_runs import make_case, make_run


def compare_times(*sides):
    return compare(
        *(
            make_run(*(make_case(id, {"time_ms": ms}) for id, ms in times.items()))
            for times in sides
        )
    )


def test_mean_ratio_weights_cases_equally_and_sums_by_time(messages):
    comparison = compare_times({"short": 1.0, "long": 100.0}, {"short": 2.0, "long": 50.0})
    overall = compute_overall(comparison)
    assert (overall.cases, overall.sum_a, overall.sum_b) == (2, 101.0, 52.0)
    assert overall.mean_ratio == pytest.approx(1.0)
    messages.check(overall.sentence)
    assert overall.sentence not in comparison_notes(comparison)  # since no case is judged
    assert comparison_object(comparison)["overall"]["cases"] == 2


def test_notes_include_the_mean_of_judged_cases():
    sides = [
        make_run(
            *(make_case(id, {"time_ms": ms}, medians={"time_ms": [ms] * 8}) for id in ("a", "b"))
        )
        for ms in (1.0, 2.0)
    ]
    comparison = compare(*sides)
    assert compute_overall(comparison).sentence in comparison_notes(comparison)


def test_single_case_has_no_overall_result():
    comparison = compare_times({"short": 1.0}, {"short": 2.0})
    assert compute_overall(comparison) is None
    assert comparison_object(comparison)["overall"] is None
