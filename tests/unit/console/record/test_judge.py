"""Verdicts of cases and runs: checks, expectations and their reasons."""

import pytest

from spbench.errors import ExitCode
from spbench.record.judge import judge, judge_run, name_ranks
from support.sample_events import (
    TIME,
    build_case_state,
    build_state,
    case_judged,
    describe_case,
    describe_metric,
    make_started_run,
    rank_event,
    run_start,
)


def judge_case(*events, hosts=("node01", "node02"), **changes):
    case = describe_case(np=len(hosts), **changes)
    return judge(build_case_state([*make_started_run(case, hosts=hosts), *events]))


def check_events(*passed, error=0.5, **fields):
    return [
        rank_event("check", rank, passed=ok, max_abs_error=0.0 if ok else error, **fields)
        for rank, ok in enumerate(passed)
    ]


def expecting(metric, op, limit):
    return {"expect": [{"metric": metric, "op": op, "limit": limit}]}


TIMES = [
    rank_event("samples", 0, values=[float(ms) for ms in range(1, 102)]),
    rank_event("samples", 1, values=[0.5] * 101),
]
"""Iterations of 1 to 101 ms: p50 is 51, p95 is 96; rank medians are 51 and 0.5."""
SKEW = 51 / 0.5


def test_case_with_passed_checks_passes():
    verdict = judge_case(*check_events(True, True))
    assert (verdict.status, verdict.reason, verdict.expectations) == ("passed", None, [])


def test_failed_check_names_rank_host_error_and_detail(messages):
    verdict = judge_case(*check_events(True, False, detail="row 3", tolerance=0.25))
    assert verdict.status == "failed"
    messages.check(verdict.reason)


def test_error_that_is_not_a_number_fails_the_check(messages):
    verdict = judge_case(*check_events(True, False, error=None))
    assert verdict.status == "failed"
    messages.check(verdict.reason)


@pytest.mark.parametrize(
    ("error", "tolerance", "description"),
    [(0.5, 0.25, "0.5 (tolerance 0.25)"), (None, 1.0, "not a number (tolerance 1)")],
)
def test_error_above_the_tolerance_overrides_a_passed_check(error, tolerance, description):
    fields = {"passed": True, "max_abs_error": error, "tolerance": tolerance, "detail": "row 3"}
    verdict = judge_case(*(rank_event("check", rank, **fields) for rank in (0, 1)))
    assert verdict.status == "failed"
    assert verdict.reason == (
        f"check halo failed on ranks 0, 1: largest error {description}: "
        "row 3 (though the rank said that it passed)"
    )


def test_check_without_figures_passes():
    events = [rank_event("check", rank) for rank in (0, 1)]
    for event in events:
        del event["max_abs_error"], event["tolerance"]
    assert judge_case(*events).status == "passed"


def test_reports_the_rank_with_the_largest_error():
    events = [
        rank_event("check", rank, passed=False, max_abs_error=error, detail=f"by {rank}")
        for rank, error in enumerate([1.0, 7.0, 2.0])
    ]
    verdict = judge_case(*events, hosts=["node01"] * 3)
    expected = "check halo failed on ranks 0, 1, 2: largest error 7 (tolerance 0): by 1"
    assert verdict.reason.startswith(expected)


def test_declared_check_that_no_rank_reports_is_an_error(messages):
    verdict = judge_case(*check_events(True, True), checks=["halo", "sum", "order"])
    assert verdict.status == "error"
    messages.check(verdict.reason)


def test_declared_check_that_one_rank_omits_is_an_error(messages):
    verdict = judge_case(*check_events(True))
    assert verdict.status == "error"
    messages.check(verdict.reason)


def test_check_missing_in_one_repeat_is_an_error(messages):
    events = [*check_events(True, True), *check_events(True, repeat=1)]
    verdict = judge_case(*events, repeat=2)
    assert verdict.status == "error"
    messages.check(verdict.reason)


def test_undetected_injected_fault_fails_the_case(messages):
    verdict = judge_case(*check_events(True, True), inject="corrupt-halo")
    assert verdict.status == "failed"
    messages.check(verdict.reason)


def test_detected_fault_is_reported_as_the_failed_check(messages):
    verdict = judge_case(*check_events(True, False), inject="corrupt-halo")
    messages.check(verdict.reason)
    missed_expectation = expecting("skew", "max", 2.0)
    verdict = judge_case(*check_events(True, True), *TIMES, inject="slow", **missed_expectation)
    messages.check(verdict.reason)


def test_undeclared_check_counts(messages):
    verdict = judge_case(*check_events(True, True), *check_events(True, False, name="more"))
    assert verdict.status == "failed"
    messages.check(verdict.reason)


def test_failed_check_precedes_a_missed_expectation():
    verdict = judge_case(*check_events(True, False), *TIMES, **expecting("time_ms", "max", 1.0))
    assert "check halo" in verdict.reason
    assert [expectation["status"] for expectation in verdict.expectations] == ["failed"]


@pytest.mark.parametrize(
    ("name", "op", "value", "met", "missed"),
    [
        ("time_ms", "max", 51.0, [51.0], [50.9]),
        ("time_ms", "min", 51.0, [51.0], [51.1]),
        ("time_ms.value", "max", 51.0, [], [50.0]),
        ("time_ms.p50", "max", 51.0, [51.0], []),
        ("time_ms.p95", "max", 96.0, [96.5], [95.0]),
        ("time_ms.p99", "max", 100.0, [], [99.0]),
        ("time_ms.min", "min", 1.0, [1.0], []),
        ("time_ms.max", "max", 101.0, [], [100.0]),
        ("time_ms.mean", "max", 51.0, [51.0], []),
        ("time_ms.n", "min", 101.0, [], [102]),
        ("skew", "max", SKEW, [102.0], [101.9]),
        ("rate", "min", None, [], [1.0]),
        ("rate.p95", "max", None, [], [1.0]),
    ],
)
def test_judges_an_expectation_by_its_limit(name, op, value, met, missed):
    for limit in (*met, *missed):
        changes = {"metrics": [TIME, describe_metric("rate")], **expecting(name, op, limit)}
        verdict = judge_case(*check_events(True, True), *TIMES, **changes)
        [expectation] = verdict.expectations
        assert (expectation["metric"], expectation["op"], expectation["limit"]) == (name, op, limit)
        assert expectation["value"] == (None if value is None else pytest.approx(value))
        assert expectation["status"] == verdict.status == ("passed" if limit in met else "failed")


@pytest.mark.parametrize(
    ("name", "op", "limit", "reason"),
    [
        ("time_ms.p95", "max", 10.0, "time_ms.p95 is 96 ms, above the expected 10 ms"),
        ("time_ms", "min", 60.0, "time_ms is 51 ms, below the expected 60 ms"),
        ("rate", "min", 3.0, "expected rate min 3, but it was not measured"),
    ],
)
def test_missed_expectation_reports_the_measured_value(name, op, limit, reason):
    changes = {"metrics": [TIME, describe_metric("rate")], **expecting(name, op, limit)}
    assert judge_case(*check_events(True, True), *TIMES, **changes).reason == reason


def test_shortens_a_list_of_many_ranks(messages):
    case = build_case_state(make_started_run(hosts=["node01"] * 12))
    messages.check(name_ranks(case, [3]))
    messages.check(name_ranks(case, [1, 2]))
    messages.check(name_ranks(case, list(range(12))))


@pytest.mark.parametrize(
    ("statuses", "verdict", "code"),
    [
        ("passed passed", "passed", ExitCode.PASSED),
        ("passed failed", "failed", ExitCode.FAILED),
        ("failed timeout passed", "timeout", ExitCode.ERROR),
        ("failed error timeout", "error", ExitCode.ERROR),
        ("failed error", "error", ExitCode.ERROR),
        ("passed skipped", "error", ExitCode.ERROR),
        ("failed skipped", "failed", ExitCode.FAILED),
    ],
)
def test_run_has_the_verdict_of_its_worst_case(statuses, verdict, code):
    names = {f"case{number}": status for number, status in enumerate(statuses.split())}
    events = [case_judged(name, status) for name, status in names.items()]
    state = build_state([run_start(*map(describe_case, names)), *events])
    assert judge_run(state.cases.values()) == (verdict, code)


def judge_against_case_b(limit, *later, ended=True, status=None, keep=True):
    """Judge case a with a time of 51 ms and a limit computed from case b."""
    expect = [{"metric": "time_ms", "op": "max", "limit": None, "expression": limit}]
    cases = [describe_case("a", expect=expect), *([describe_case("b")] if keep else [])]
    events = [*make_started_run(*cases), *check_events(True, True), *TIMES]
    if keep:
        events_of_b = [rank_event("case_start", rank, case="b") for rank in (0, 1)]
        events_of_b += [
            rank_event("samples", rank, case="b", values=[40.0, 60.0]) for rank in (0, 1)
        ]
        ends = [rank_event("case_end", rank, case="b") for rank in (0, 1)]
        events += [*events_of_b, *later, *(ends if ended else [])]
        events += [case_judged("b", status)] if status else []
    cases = build_state(events).cases
    return judge(cases["a"], cases)


@pytest.mark.parametrize(
    ("limit", "status", "value", "reason"),
    [
        ("1.5 * case(b).time_ms", "passed", 75.0, None),
        (
            "case(b).time_ms",
            "failed",
            50.0,
            "time_ms is 51 ms, above the expected 50 ms = case(b).time_ms",
        ),
        ("case(b).rate", "failed", None, "case b has not measured rate"),
        ("1 / (case(b).time_ms - 50)", "failed", None, "it divides by zero"),
        (
            "1 - case(b).time_ms",
            "failed",
            None,
            "it comes to -49, and nothing measured is negative",
        ),
    ],
)
def test_computes_a_limit_from_another_case(limit, status, value, reason):
    verdict = judge_against_case_b(limit)
    (expectation,) = verdict.expectations
    assert (verdict.status, expectation["status"], expectation["limit"]) == (status, status, value)
    assert (verdict.reason is None) if reason is None else verdict.reason.endswith(reason)


@pytest.mark.parametrize(
    ("options", "status", "reason"),
    [
        ({"keep": False}, "skipped", "case b is not part of this run"),
        ({"ended": False, "status": "cancelled"}, "skipped", "case b was cancelled"),
        ({"ended": False, "status": "error"}, "failed", "case b ended in error"),
        ({"ended": False, "status": "timeout"}, "failed", "case b ran out of time"),
        ({"ended": False, "status": "skipped"}, "failed", "case b did not run"),
    ],
)
def test_reports_why_the_other_case_has_no_figures(options, status, reason):
    verdict = judge_against_case_b("case(b).time_ms", **options)
    (expectation,) = verdict.expectations
    assert (expectation["status"], expectation["reason"], expectation["limit"]) == (
        status,
        reason,
        None,
    )
    assert verdict.status == ("passed" if status == "skipped" else "failed")


def test_figures_of_a_case_with_a_failed_check_do_not_count(messages):
    failed = rank_event("check", 0, case="b", passed=False)
    messages.check(judge_against_case_b("case(b).time_ms", failed).reason)
