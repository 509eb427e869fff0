"""Comparisons of two runs: outcomes of metrics and judgements of cases."""

import math
from random import Random

import pytest

from spbench.report.comparison.compare import TOLERANCE, compare
from spbench.report.comparison.model import Outcome
from spbench.report.comparison.notes import comparison_notes
from spbench.report.comparison.rows import OutcomeLabel, case_rows
from spbench.report.model import LaunchPart
from spbench_core.events.statuses import CaseStatus
from support.sample_runs import make_case, make_failed_check, make_metric, make_run

FIVE = [1.00, 1.01, 1.02, 0.99, 0.98]
"""Times of five launches on a quiet machine, in ms."""


def scale_launches(factor, launches=FIVE):
    return [factor * launch for launch in launches]


def launch_part(*, oversubscribed):
    fields = {"argv": [], "hostfile": None, "env": {}, "job": 1}
    return LaunchPart(launcher="openmpi", version="5", oversubscribed=oversubscribed, **fields)


def compare_values(a, b):
    """Return the only row of two runs of one metric; None: not measured."""
    cases = [make_case("a", {} if value is None else {"m": value}) for value in (a, b)]
    [row] = compare(*map(make_run, cases)).rows
    return row


def compare_launches(a, b, better="lower", **more):
    """Return the row of the headline metric for these launches of a and b."""
    sides = [
        make_run(
            make_case(
                "a",
                {"time_ms": make_metric(launches[0], better=better)},
                medians={"time_ms": launches},
            )
        )
        for launches in (a, b)
    ]
    [row] = compare(*sides, **more).rows
    return row


@pytest.mark.parametrize(
    ("better", "factor", "outcome"),
    [
        ("lower", 0.9, Outcome.BETTER),
        ("lower", 1.1, Outcome.WORSE),
        ("higher", 0.9, Outcome.WORSE),
        ("higher", 1.1, Outcome.BETTER),
        ("lower", 1.0, Outcome.SAME),
        ("lower", 1 + TOLERANCE / 2, Outcome.SAME),
    ],
)
def test_metric_defines_which_direction_is_better(better, factor, outcome):
    row = compare_launches(FIVE, scale_launches(factor), better)
    assert (row.outcome, row.reason, row.launches) == (outcome, None, (5, 5))
    assert row.ratio == pytest.approx(factor, rel=0.005)
    low, high = row.interval
    assert low < factor < high


@pytest.mark.parametrize(("better", "inverse"), [("lower", False), ("higher", True)])
def test_metric_that_follows_the_time_has_its_outcome(better, inverse):
    a = FIVE
    b = scale_launches(0.97, [1.0, 1.002, 1.001, 0.999, 0.998])

    def side(launches):
        # Medians of iterations that are computed in two ways differ slightly.
        medians = [1.002 / value for value in launches] if inverse else launches
        metrics = {"time_ms": make_metric(launches[0]), "m": make_metric(medians[0], better=better)}
        others = [
            make_case(f"b{number}", {"time_ms": make_metric(1.0)}, medians={"time_ms": FIVE})
            for number in range(9)
        ]
        return make_run(
            make_case("a", metrics, medians={"time_ms": launches, "m": medians}), *others
        )

    def outcomes(b):
        return [row.outcome for row in compare(side(a), side(b)).cases[0].rows]

    # Ten cases are tested together: five launches do not suffice for such a difference.
    assert outcomes(b) == [Outcome.SAME, Outcome.SAME]


def test_metric_with_one_value_per_run_has_no_verdict():
    def side(launches, skew):
        metrics = {"time_ms": make_metric(launches[0]), "skew": make_metric(skew)}
        return make_run(make_case("a", metrics, medians={"time_ms": launches}))

    time, skew = compare(side(FIVE, 1.01), side(scale_launches(1.2), 1.21)).rows
    assert (time.outcome, skew.outcome) == (Outcome.WORSE, Outcome.TOO_FEW)
    assert skew.interval is None


@pytest.mark.parametrize("earlier_count", [0, 4, 5])
def test_small_difference_counts_only_with_five_earlier_runs(earlier_count):
    steady = [1.0, 1.001, 1.002, 0.999, 0.998]
    earlier = [scale_launches(1 + index / 1000, steady) for index in range(earlier_count)]
    row = compare_launches(
        steady, scale_launches(1.04, steady), past_launches=lambda case, metric: earlier
    )
    assert row.outcome == (Outcome.WORSE if earlier_count == 5 else Outcome.SAME)
    assert compare_launches(steady, scale_launches(1.06, steady)).outcome is Outcome.WORSE


def test_uncertain_difference_within_the_tolerance_is_unjudged(messages):
    a = [1.0, 1.001, 1.002, 0.999, 0.998]
    b = [1.03, 1.04, 1.045, 1.2, 1.3]
    sides = [
        make_run(make_case("a", {"time_ms": launches[0]}, medians={"time_ms": launches}))
        for launches in (a, b)
    ]
    comparison = compare(*sides)
    assert comparison.cases[0].rows[0].outcome is Outcome.TOO_FEW
    messages.check(comparison_notes(comparison)[0])


def test_metric_without_a_direction_has_no_outcome():
    row = compare_launches(FIVE, scale_launches(2.0), "none")
    assert (row.outcome, row.reason) == (None, "neither way is better")


def test_single_slow_launch_does_not_change_the_outcome():
    assert compare_launches(FIVE, [*scale_launches(1.1)[:4], 1.9]).outcome is Outcome.WORSE
    assert compare_launches(FIVE, [*FIVE[:4], 1.9]).outcome in (Outcome.SAME, Outcome.TOO_FEW)


def test_too_few_launches_give_no_verdict():
    row = compare_launches([1.0], [2.0])
    assert (row.outcome, row.interval, row.ratio) == (Outcome.TOO_FEW, None, 2.0)
    within = "within a factor of 3 (fewer than 5 recorded launches)"
    assert row.reason == f"1 and 1 launches; {within}; 4 per side needed"


@pytest.mark.parametrize(
    ("factor", "outcome"), [(3.1, Outcome.WORSE), (1 / 3.1, Outcome.BETTER), (2.9, Outcome.TOO_FEW)]
)
def test_single_launch_without_history_needs_a_factor_of_3(factor, outcome, messages):
    row = compare_launches([1.0], [factor])
    assert (row.outcome, row.by_factor) == (outcome, outcome != Outcome.TOO_FEW)
    messages.check(row.reason)


def test_past_launches_that_differ_more_raise_the_factor():
    recorded = [[1.0], [8.0]]
    assert (
        compare_launches([1.0], [7.0], past_launches=lambda case, metric: recorded).outcome
        is Outcome.TOO_FEW
    )
    assert (
        compare_launches([1.0], [9.0], past_launches=lambda case, metric: recorded).outcome
        is Outcome.WORSE
    )


def test_noisy_case_with_one_launch_is_not_judged(messages):
    quiet = make_case("a")
    noisy = make_case("a", {"time_ms": 2000.0}, noisy="other work had its cores")
    for sides in ((quiet, noisy), (noisy, quiet)):
        [row] = compare(*map(make_run, sides)).rows
        assert (row.outcome, row.factor) == (Outcome.TOO_FEW, None)
        messages.check(row.reason)


def test_factor_decides_if_too_many_cases_share_a_test():
    def side(factor):
        four = [1.0, 1.01, 1.02, 1.03]
        slow = make_case("slow", medians={"time_ms": scale_launches(factor, four)})
        return make_run(slow, *(make_case(f"c{n}", medians={"time_ms": four}) for n in range(11)))

    [row, *others] = compare(side(1.0), side(4.0)).rows
    assert (row.outcome, row.by_factor) == (Outcome.WORSE, True)
    assert [other.by_factor for other in others] == [False] * 11


def run_with_fastest(medians, fastest, n=150):
    """Return a run of one case with these launches of 30 iterations each."""
    time = make_metric(medians[0], n=n, better="lower")
    return make_run(
        make_case("a", {"time_ms": time}, medians={"time_ms": medians}, fastest=fastest)
    )


NOISY_MEDIANS = [1.00, 1.21, 1.30, 1.05, 1.24]
"""Medians of five launches with varying other load on the machine, in ms."""


def test_fastest_iterations_show_a_change_that_medians_hide(messages):
    slower = scale_launches(1.1, [1.22, 1.01, 1.26, 1.03, 1.28])
    medians_row = compare_launches(NOISY_MEDIANS, slower)
    assert (medians_row.outcome, medians_row.by_fastest, medians_row.fastest) == (
        Outcome.TOO_FEW,
        False,
        None,
    )
    [row] = compare(
        run_with_fastest(NOISY_MEDIANS, FIVE), run_with_fastest(slower, scale_launches(1.1))
    ).rows
    assert (row.outcome, row.by_fastest) == (Outcome.WORSE, True)
    messages.check(row.reason)
    assert row.ratio == pytest.approx(medians_row.ratio)
    [reverse] = compare(
        run_with_fastest(slower, scale_launches(1.1)), run_with_fastest(NOISY_MEDIANS, FIVE)
    ).rows
    assert (reverse.outcome, reverse.by_fastest) == (Outcome.BETTER, True)


def test_fastest_of_more_iterations_does_not_count():
    sides = run_with_fastest(FIVE, scale_launches(1.1)), run_with_fastest(FIVE, FIVE, n=1500)
    [row] = compare(*sides).rows
    assert (row.outcome, row.fastest) == (Outcome.SAME, None)


def test_four_launches_are_tested_by_their_medians_only():
    four = FIVE[:4]
    [row] = compare(
        run_with_fastest(four, four, n=120),
        run_with_fastest(scale_launches(1.5, four), four, n=120),
    ).rows
    assert (row.outcome, row.fastest) == (Outcome.WORSE, None)


@pytest.mark.slow
def test_second_test_does_not_raise_the_false_alarm_rate():
    random_source = Random(3)
    false_alarms = 0
    trials = 2000

    def side():
        medians = [math.exp(random_source.gauss(0, 0.1)) for _ in range(5)]
        return run_with_fastest(
            medians, [median * math.exp(random_source.gauss(-0.2, 0.05)) for median in medians]
        )

    for _ in range(trials):
        [row] = compare(side(), side()).rows
        false_alarms += row.outcome in (Outcome.BETTER, Outcome.WORSE)
    assert false_alarms <= 0.05 * trials


def test_noise_that_hides_10_percent_gives_no_verdict(messages):
    noisy = [0.7, 1.0, 1.3, 0.8, 1.2]
    row = compare_launches(noisy, noisy)
    assert row.outcome is Outcome.TOO_FEW
    messages.check(row.reason)


def test_difference_among_many_cases_needs_more_launches(messages):
    def side(factor, launches):
        first = make_case("slow", medians={"time_ms": scale_launches(factor, launches)})
        others = [make_case(f"c{n}", medians={"time_ms": list(launches)}) for n in range(11)]
        return make_run(first, *others)

    row = next(compare(side(1.0, FIVE), side(1.5, FIVE)).rows)
    assert row.outcome is Outcome.TOO_FEW
    messages.check(row.reason)
    six = [*FIVE, 1.005]
    assert [row.outcome for row in compare(side(1.0, six), side(1.5, six)).rows] == [
        Outcome.WORSE,
        *[Outcome.SAME] * 11,
    ]


def test_variation_of_earlier_runs_widens_the_interval():
    steady = [[1.0 + n / 1000] for n in range(10)]
    wide = [[0.8 + n / 20] for n in range(10)]
    row = compare_launches([1.0], [1.6], past_launches=lambda case, metric: steady)
    assert row.outcome is Outcome.WORSE
    row = compare_launches([1.0], [1.6], past_launches=lambda case, metric: wide)
    assert row.outcome is not Outcome.WORSE
    row = compare_launches(FIVE, scale_launches(1.1), past_launches=lambda case, metric: wide)
    assert row.outcome is Outcome.TOO_FEW
    assert row.interval[0] < 0.8


def test_difference_far_beyond_earlier_runs_is_judged(messages):
    steady = [[1.0 + n / 100_000] for n in range(10)]
    row = compare_launches([1.0], [2.0], past_launches=lambda case, metric: steady)
    assert row.outcome is Outcome.WORSE
    messages.check(row.reason)


def test_different_machines_are_not_comparable(messages):
    row = compare_launches(FIVE, scale_launches(1.1), mismatch="cores 2 in a, 4 in b")
    assert row.outcome is Outcome.NOT_COMPARABLE
    messages.check(row.reason)


def test_core_sharing_in_one_run_is_not_comparable(messages):
    sides = [
        make_run(
            make_case(
                "a",
                medians={"time_ms": scale_launches(factor)},
                launch=launch_part(oversubscribed=crowded),
            )
        )
        for factor, crowded in ((1.0, False), (0.5, True))
    ]
    row = compare(*sides).cases[0].headline
    assert row.outcome is Outcome.NOT_COMPARABLE
    messages.check(row.reason)
    forced = compare(*sides, force=True).cases[0].headline
    assert forced.outcome is Outcome.BETTER


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (0.0, 1.0, "0 in a"),
        (1.0, 0.0, "0 in b"),
        (-1.0, 1.0, "below 0 in a"),
        (-2.0, -1.0, "below 0 in a and b"),
        (None, 1.0, "not measured in a"),
        (1.0, None, "not measured in b"),
        (make_metric(1.0), make_metric(1.0, "us"), "in ms in a, in us in b"),
    ],
)
def test_row_without_a_ratio_has_a_reason(a, b, reason):
    row = compare_values(a, b)
    assert (row.ratio, row.outcome, row.reason) == (None, None, reason)


def test_count_of_0_in_both_runs_is_the_same():
    row = compare_values(0.0, 0.0)
    assert (row.ratio, row.outcome, row.reason) == (None, Outcome.SAME, "0 in a and b")


def test_rows_have_the_order_of_the_first_run():
    a = make_run(make_case("z", {"m": 1.0, "k": 1.0}), make_case("a"))
    b = make_run(make_case("a"), make_case("z", {"n": 1.0, "k": 1.0}))
    comparison = compare(a, b)
    assert [pair.id for pair in comparison.cases] == ["z", "a"]
    assert [row.metric for row in comparison.cases[0].rows] == ["m", "k", "n"]


def test_lists_cases_of_only_one_run():
    first = make_run(make_case("a"), make_case("both"), id="1")
    second = make_run(make_case("both"), make_case("b"), id="2")
    comparison = compare(first, second)
    assert (comparison.only_a, comparison.only_b) == (("a",), ("b",))
    assert [pair.id for pair in comparison.cases] == ["both"]
    assert (comparison.a.id, comparison.b.id) == ("1", "2")


def test_reports_differences_of_cases_with_equal_ids(messages):
    a = make_case("a", params={"halo_len": 1, "sizes": [8, 64], "pad": None, "old": 2})
    b = make_case("a", params={"halo_len": 3, "sizes": [8], "new": True}, np=4, benchmark="other")
    [pair] = compare(make_run(a), make_run(b)).cases
    messages.check(pair.differences)
    assert pair.remarks == pair.differences


def test_equal_cases_have_no_remarks():
    [pair] = compare(make_run(make_case()), make_run(make_case())).cases
    assert (pair.differences, pair.remarks) == ((), ())


FAILED_CHECK = make_failed_check("row 3")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "failed", "checks": [FAILED_CHECK]}, "check halo failed in b"),
        ({"status": "error"}, "error in b"),
        ({"status": "timeout"}, "timeout in b"),
    ],
)
def test_figures_of_a_broken_case_are_not_judged(changes, reason):
    [pair] = compare(
        make_run(make_case()), make_run(make_case("a", {"time_ms": 1.0}, **changes))
    ).cases
    [row] = pair.rows
    assert (row.ratio, row.outcome, row.reason) == (0.5, None, reason)
    assert pair.remarks == (f"passed in a, {changes['status']} in b",)


def test_case_that_failed_only_an_expectation_is_judged():
    failed = make_case("a", {"time_ms": 5.0}, status="failed", reason="time_ms is above 4")
    comparison = compare(make_run(make_case()), make_run(failed))
    [row] = comparison.rows
    assert row.outcome is Outcome.TOO_FEW
    assert judgements_by_case(comparison) == {"a": ("broken", "time_ms is above 4")}


def test_reason_covers_both_broken_runs(messages):
    sides = [make_run(make_case(status="error")), make_run(make_case(status="timeout"))]
    [row] = compare(*sides).rows
    messages.check(row.reason)


def test_tally_counts_outcomes(messages):
    a = {"worse": 1.0, "gone": 1.0, "better": 2.0}
    b = {"worse": 1.0, "better": 2.0}
    medians_of_a = {"worse": FIVE, "better": FIVE}
    medians_of_b = {"worse": scale_launches(1.2), "better": scale_launches(0.8)}
    assert compare(
        make_run(make_case("a", a, medians=medians_of_a)),
        make_run(make_case("a", b, medians=medians_of_b)),
    ).tally == ("0 of 1 case judged, 1 unjudged")
    assert compare(make_run(), make_run()).tally == "0 of 0 cases judged"
    slower = make_case("b", medians={"time_ms": scale_launches(1.3)})
    broken = make_case("c", status="error")
    sides = (
        make_run(make_case("b", medians={"time_ms": FIVE}), make_case("c")),
        make_run(slower, broken, make_case("d")),
    )
    messages.check(compare(*sides).tally)


def test_select_rows_keeps_the_cases_of_one_outcome():
    sides = [
        make_run(make_case("a", medians={"time_ms": scale_launches(factor)}), make_case("b"))
        for factor in (1.0, 1.3)
    ]
    comparison = compare(*sides)
    assert [row.outcome for row in comparison.rows] == [Outcome.WORSE, Outcome.TOO_FEW]
    assert [pair.id for pair in comparison.select_rows("not judged").cases] == ["b"]
    assert comparison.select_rows("broken").cases == ()
    worse_only = comparison.select_rows("worse")
    assert [row.case for row in worse_only.rows] == ["a"]
    assert worse_only.tally == comparison.tally == "1 of 2 cases judged (1 worse), 1 unjudged"


# Judgements of cases


def judgements_by_case(comparison):
    """Return the judgement and its reason by case."""
    return {case.case: (case.judgement, case.reason) for case in comparison.judgements}


PASSED_CHECK = make_failed_check().model_copy(
    update={"status": "passed", "max_abs_error": 0.0, "ranks_failed": 0}
)


@pytest.mark.parametrize(
    "reason",
    ["fault found, as planted: rank 1 is slow", "nothing noticed the planted fault slow=1.1"],
)
def test_case_failed_by_an_injected_fault_is_judged_by_its_time(reason, messages):
    def side(launches, **more):
        return make_run(
            make_case(
                "a", {"time_ms": make_metric(launches[0])}, medians={"time_ms": launches}, **more
            )
        )

    comparison = compare(side(FIVE), side(scale_launches(1.2), status="failed", reason=reason))
    (judgement,) = comparison.judgements
    assert (judgement.judgement, judgement.outcome) == ("judged", Outcome.WORSE)
    [note] = [note for note in comparison_notes(comparison) if "Failed in b" in note]
    messages.check(note)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "failed", "checks": [make_failed_check()]}, "check halo failed"),
        ({"status": "failed", "reason": "time_ms is above 1"}, "time_ms is above 1"),
        ({"status": "error"}, "error"),
        ({"status": "timeout"}, "timeout"),
        ({"status": "skipped"}, "skipped"),
        ({"checks": []}, "check halo is missing"),
    ],
)
def test_case_that_failed_or_lost_a_check_is_broken(changes, reason):
    checked = make_case("a", checks=[PASSED_CHECK])
    status = CaseStatus(changes.get("status", CaseStatus.PASSED))
    later = checked.model_copy(update=changes | {"status": status})
    assert judgements_by_case(compare(make_run(checked), make_run(later))) == {
        "a": ("broken", reason)
    }


def test_case_that_the_user_cancelled_is_not_judged():
    cancelled = make_case("a", status="cancelled")
    comparison = compare(make_run(make_case("a")), make_run(cancelled))
    assert judgements_by_case(comparison) == {"a": ("unjudged", "cancelled in b")}
    assert [row.label for row in case_rows(comparison)] == [OutcomeLabel.CANCELLED]
    [note] = [note for note in comparison_notes(comparison) if "cancelled in b" in note]
    assert note == "Not judged, cancelled in b: a."
    failed = make_case("a", status="cancelled", checks=[make_failed_check()])
    assert judgements_by_case(compare(make_run(make_case("a")), make_run(failed))) == {
        "a": ("broken", "check halo failed")
    }


def test_case_broken_in_both_runs_is_broken():
    failed = make_case("a", status="failed", checks=[make_failed_check()])
    assert judgements_by_case(compare(make_run(failed), make_run(failed))) == {
        "a": ("broken", "check halo failed")
    }
    assert judgements_by_case(compare(make_run(), make_run(failed))) == {
        "a": ("broken", "check halo failed")
    }
    assert judgements_by_case(
        compare(make_run(failed), make_run(make_case("a", checks=[PASSED_CHECK])))
    ) == {"a": ("unjudged", "check halo failed in a")}


def test_case_of_only_one_run_is_unjudged():
    old = make_run(make_case("old"), id="1")
    new = make_run(make_case("new"), id="2")
    assert judgements_by_case(compare(old, new)) == {
        "new": ("unjudged", "not in run 1"),
        "old": ("unjudged", "only in run 1"),
    }


@pytest.mark.parametrize(
    "option", [("-k", "new"), ("--case", "new"), ("--case=new",), ("--failed", "last")]
)
def test_cases_excluded_by_a_filter_are_not_judged(option):
    later = make_run(make_case("new"), argv=("run", "made-up.yaml", *option))
    assert judgements_by_case(
        compare(make_run(make_case("old"), make_case("new")), later)
    ).keys() == {"new"}


def test_case_without_a_time_is_unjudged():
    sides = make_run(make_case("a", {"m": 1.0})), make_run(make_case("a", {"m": 1.0}))
    assert judgements_by_case(compare(*sides)) == {"a": ("unjudged", "its time was not measured")}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"params": {"halo_len": 7}}, "halo_len 1 in a, 7 in b"),
        ({"params": {"halo_len": None}}, "halo_len 1 in a, not set in b"),
        ({"np": 8}, "2 ranks in a, 8 in b"),
        ({"benchmark": "other.one"}, "made.up in a, other.one in b"),
    ],
)
def test_different_work_is_not_comparable_unless_forced(changes, reason):
    a, b = (
        make_run(make_case("a", medians={"time_ms": FIVE}, **options)) for options in ({}, changes)
    )
    comparison = compare(a, b)
    assert judgements_by_case(comparison) == {"a": ("unjudged", reason)}
    assert [row.outcome for row in comparison.rows] == ["not comparable"]
    assert judgements_by_case(compare(a, b, force=True)) == {"a": ("judged", None)}


def test_different_seed_is_comparable():
    a, b = (make_run(make_case("a", params={"seed": n}, medians={"time_ms": FIVE})) for n in (1, 2))
    assert judgements_by_case(compare(a, b)) == {"a": ("judged", None)}
