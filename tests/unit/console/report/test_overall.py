"""Two runs as a whole."""

import pytest

from spbench.report.comparison.compare import compare
from spbench.report.comparison.model import compute_overall
from spbench.report.comparison.notes import comparison_notes
from spbench.report.export import comparison_object
from unit.results import case, run


def pair(*sides):
    return compare(*(run(*(case(id, {"time_ms": ms}) for id, ms in of.items())) for of in sides))


def test_the_mean_weighs_cases_alike_and_the_sums_by_their_time():
    both = pair({"short": 1.0, "long": 100.0}, {"short": 2.0, "long": 50.0})
    together = compute_overall(both)
    assert (together.cases, together.sum_a, together.sum_b) == (2, 101.0, 52.0)
    assert together.mean_ratio == pytest.approx(1.0)
    assert together.sentence == (
        "Geometric mean of b/a over 2 cases, each counted alike: 1.00x. "
        "Sum of the times, mostly that of long cases: 101 ms in a, 52.0 ms in b (0.515x)."
    )
    assert together.sentence not in comparison_notes(both)  # no case is judged
    assert comparison_object(both)["overall"]["cases"] == 2


def test_the_mean_of_judged_cases_is_among_the_notes():
    sides = [
        run(*(case(id, {"time_ms": ms}, medians={"time_ms": [ms] * 8}) for id in ("a", "b")))
        for ms in (1.0, 2.0)
    ]
    both = compare(*sides)
    sentence = compute_overall(both).sentence
    assert sentence in comparison_notes(both)


def test_one_case_is_no_whole():
    both = pair({"short": 1.0}, {"short": 2.0})
    assert compute_overall(both) is None
    assert comparison_object(both)["overall"] is None
