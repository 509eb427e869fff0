import pytest

from spbench.report.compare import ALIKE, compare
from spbench.report.model import CheckPart
from unit.results import case, figure, run


def row_of(a, b):
    """The one row of two runs of one metric; None: not measured."""
    cases = [case("a", {} if value is None else {"m": value}) for value in (a, b)]
    [row] = compare(*map(run, cases)).rows
    return row


@pytest.mark.parametrize(
    ("better", "a", "b", "outcome"),
    [
        ("lower", 2.0, 1.0, "better"),
        ("lower", 1.0, 2.0, "worse"),
        ("higher", 2.0, 1.0, "worse"),
        ("higher", 1.0, 2.0, "better"),
        ("none", 1.0, 2.0, "differs"),
        ("lower", 100.0, 100.0 * (1 + ALIKE), "alike"),
        ("lower", 100.0 * (1 + ALIKE), 100.0, "alike"),
        ("lower", 100.0, 100.1 * (1 + ALIKE), "worse"),
        ("higher", 100.1 * (1 + ALIKE), 100.0, "worse"),
        ("none", 100.0, 101.0, "alike"),
    ],
)
def test_the_metric_says_which_direction_is_better(better, a, b, outcome):
    row = row_of(figure(a, better=better), figure(b, better=better))
    assert (row.a, row.b, row.outcome, row.reason) == (a, b, outcome, None)
    assert row.ratio == b / a


@pytest.mark.parametrize(
    ("a", "b", "outcome", "reason"),
    [
        (0.0, 1.0, "worse", "0 in a"),
        (1.0, 0.0, "better", "0 in b"),
        (0.0, 0.0, "alike", "0 in a and b"),
        (-1.0, 1.0, "worse", "of opposite signs"),
        (1.0, -1.0, "better", "of opposite signs"),
        (-2.0, -1.0, "worse", "below 0 in a and b"),
        (-1.0, -2.0, "better", "below 0 in a and b"),
        (None, 1.0, None, "not measured in a"),
        (1.0, None, None, "not measured in b"),
        (figure(1.0), figure(1.0, "us"), None, "in ms in a, in us in b"),
    ],
)
def test_where_there_is_no_ratio_the_row_says_why(a, b, outcome, reason):
    row = row_of(a, b)
    assert (row.ratio, row.outcome, row.reason) == (None, outcome, reason)


def test_rows_stand_in_the_order_of_the_first_run():
    a = run(case("z", {"m": 1.0, "k": 1.0}), case("a"))
    b = run(case("a"), case("z", {"n": 1.0, "k": 1.0}))
    comparison = compare(a, b)
    assert [pair.id for pair in comparison.cases] == ["z", "a"]
    assert [row.metric for row in comparison.cases[0].rows] == ["m", "k", "n"]


def test_cases_of_one_run_alone_are_named():
    first, second = run(case("a"), case("both"), id="1"), run(case("both"), case("b"), id="2")
    comparison = compare(first, second)
    assert (comparison.only_a, comparison.only_b) == (("a",), ("b",))
    assert [pair.id for pair in comparison.cases] == ["both"]
    assert (comparison.a.id, comparison.b.id) == ("1", "2")


def test_what_differs_in_spite_of_equal_ids_is_told():
    a = case("a", params={"halo_len": 1, "sizes": [8, 64], "pad": None, "old": 2})
    b = case("a", params={"halo_len": 3, "sizes": [8], "new": True}, np=4, benchmark="other")
    [pair] = compare(run(a), run(b)).cases
    assert pair.differences == (
        "made.up in a, other in b",
        "2 ranks in a, 4 in b",
        "halo_len 1 in a, 3 in b",
        "sizes 8+64 in a, 8 in b",
        "only in a: old=2",
        "only in b: new=true",
    )
    assert pair.remarks == pair.differences


def test_equal_cases_have_no_remarks():
    [pair] = compare(run(case()), run(case())).cases
    assert (pair.differences, pair.remarks) == ((), ())


BROKEN = CheckPart(
    name="halo",
    status="failed",
    max_abs_error=1.0,
    tolerance=0.0,
    ranks_passed=1,
    ranks_failed=1,
    detail="row 3",
)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "failed", "checks": [BROKEN]}, "check halo failed in b"),
        ({"status": "error"}, "error in b"),
        ({"status": "timeout"}, "timeout in b"),
    ],
)
def test_numbers_of_a_case_that_went_wrong_are_not_judged(changes, reason):
    [pair] = compare(run(case()), run(case("a", {"time_ms": 1.0}, **changes))).cases
    [row] = pair.rows
    assert (row.ratio, row.outcome, row.reason) == (0.5, None, reason)
    assert pair.remarks == (f"passed in a, {changes['status']} in b",)


def test_a_case_that_failed_an_expectation_alone_is_judged():
    [row] = compare(run(case()), run(case("a", {"time_ms": 9.0}, status="failed"))).rows
    assert (row.outcome, row.reason) == ("worse", None)


def test_both_runs_may_have_gone_wrong():
    both = [run(case(status="error")), run(case(status="timeout"))]
    [row] = compare(*both).rows
    assert row.reason == "error in a and timeout in b"


def test_outcomes_are_counted():
    a = {"worse": 1.0, "alike": 1.0, "also": 1.0, "gone": 1.0, "better": 2.0}
    b = {"worse": 2.0, "alike": 1.0, "also": 1.0, "better": 1.0}
    assert compare(run(case("a", a)), run(case("a", b))).tally == (
        "1 better, 1 worse, 2 alike, 1 not judged"
    )
    assert compare(run(), run()).tally == "nothing measured"
