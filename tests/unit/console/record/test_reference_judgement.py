"""Expectations with a reference: verdicts, messages and reports."""

import jsonschema
import pytest

from spbench.record.judge import describe_expected, describe_not_judged, judge
from spbench.report.build import build_report
from spbench.report.model import report_schema
from spbench_core.events.fields import EventError
from spbench_core.events.run_events import check_run_event
from support.sample_events import (
    TIME,
    build_state,
    case_judged,
    describe_case,
    describe_metric,
    job_end,
    make_started_run,
    rank_event,
    run_end,
    run_start,
)

RATE = describe_metric("bandwidth_gb_s", "GB/s", "higher", "min")
EFFICIENCY = describe_metric("exchange_efficiency", "1", "higher", "min")
REFERENCE = {"value": 50.0, "unit": "ms", "lower": -0.1, "upper": 0.05, "system": None}


def build_bound(op, limit, metric="time_ms.p50", **changes):
    reference = REFERENCE | changes
    return {"metric": metric, "op": op, "limit": limit, "reference": reference}


BOTH_SIDES = [build_bound("max", 52.5), build_bound("min", 45.0)]
UNKNOWN_SYSTEM = {
    "metric": "time_ms.p50",
    "op": "max",
    "limit": None,
    "skipped": "no reference for system vm (suite has big, laptop)",
}


def judge_case(expect, times=(50.0,), values=(), disturbed=None):
    """Return the verdict on a case of one rank, and the state of the case."""
    case = describe_case(np=1, expect=expect, checks=[], metrics=[TIME, RATE, EFFICIENCY])
    events = [*make_started_run(case, hosts=["node01"]), rank_event("samples", values=[*times])]
    events += [rank_event("metric", name=name, value=value) for name, value in values]
    events.append(rank_event("case_end", disturbed=disturbed or {}))
    state = build_state(events)
    return judge(state.cases["a"]), state.cases["a"]


@pytest.mark.parametrize(
    ("time", "status"),
    [
        (45.0, "passed"),
        (52.5, "passed"),
        (44.999, "failed"),
        (52.501, "failed"),
    ],
)
def test_both_tolerances_include_their_edges(time, status):
    assert judge_case(BOTH_SIDES, [time])[0].status == status


@pytest.mark.parametrize(
    ("expect", "time", "status"),
    [
        ([build_bound("max", 52.5, lower=None)], 0.001, "passed"),
        ([build_bound("min", 45.0, upper=None)], 1e6, "passed"),
        ([build_bound("max", 52.5, lower=None)], 60.0, "failed"),
        ([build_bound("min", 45.0, upper=None)], 40.0, "failed"),
    ],
)
def test_side_without_a_tolerance_has_no_bound(expect, time, status):
    assert judge_case(expect, [time])[0].status == status


@pytest.mark.parametrize(
    ("expect", "measured", "reason"),
    [
        (
            BOTH_SIDES,
            {"times": [58.5]},
            "time_ms.p50 is 58.5 ms, 17 % above its reference 50.0 ms (allowed: -10 % to +5 %)",
        ),
        (
            BOTH_SIDES,
            {"times": [25.0]},
            "time_ms.p50 is 25.0 ms, 50 % below its reference 50.0 ms (allowed: -10 % to +5 %)",
        ),
        (
            [build_bound("max", 52.5, lower=None)],
            {"times": [1000.0]},
            "time_ms.p50 is 1.00 s, 20.0x its reference 50.0 ms (allowed: up to +5 %)",
        ),
        (
            [build_bound("max", 0.42, "time_ms", value=0.4, lower=None, upper=0.05)],
            {"times": [0.43]},
            "time_ms is 430 us, 7.5 % above its reference 400 us (allowed: up to +5 %)",
        ),
        (
            [
                build_bound(
                    "min", 11.1, "bandwidth_gb_s", value=12, unit="GB/s", lower=-0.075, upper=None
                )
            ],
            {"values": [("bandwidth_gb_s", 6.0)]},
            "bandwidth_gb_s is 6.00 GB/s, 50 % below its reference 12.0 GB/s "
            "(allowed: down to -7.5 %)",
        ),
        (
            [
                build_bound(
                    "min", 0.9, "exchange_efficiency", value=0.9, unit="1", lower=0.0, upper=None
                )
            ],
            {"values": [("exchange_efficiency", 0.45)]},
            "exchange_efficiency is 45 %, 50 % below its reference 90 % (allowed: down to 0 %)",
        ),
        (
            [build_bound("max", 52.5)],
            {"times": []},
            "expected time_ms.p50 max 52.5 ms (reference 50.0 ms +5 %), but it was not measured",
        ),
    ],
)
def test_reason_has_value_deviation_and_tolerances_with_units(expect, measured, reason):
    verdict, _ = judge_case(expect, **measured)
    assert (verdict.status, verdict.reason) == ("failed", reason)


def test_judges_a_statistic_of_the_metric():
    times = [50.0] * 90 + [100.0] * 10
    assert judge_case(BOTH_SIDES, times)[0].status == "passed"
    (p95,) = judge_case([build_bound("max", 52.5, "time_ms.p95")], times)[0].expectations
    assert (p95["status"], p95["value"]) == ("failed", 100.0)


@pytest.mark.parametrize(("rate", "status"), [(9.0, "failed"), (11.0, "passed"), (30.0, "failed")])
def test_judges_both_sides_if_higher_is_better(rate, status):
    reference = {"value": 12.0, "unit": "GB/s"}
    expect = [
        build_bound("max", 12.6, "bandwidth_gb_s", **reference),
        build_bound("min", 10.8, "bandwidth_gb_s", **reference),
    ]
    assert judge_case(expect, values=[("bandwidth_gb_s", rate)])[0].status == status


@pytest.mark.parametrize(
    "expect", [BOTH_SIDES, [{"metric": "time_ms", "op": "max", "limit": 52.5}]]
)
def test_noise_does_not_change_the_verdict(expect):
    noise = {"stolen": 0.5}
    assert judge_case(expect, [58.5], disturbed=noise)[0].status == "failed"
    assert judge_case(expect, [50.0], disturbed=noise)[0].status == "passed"


def test_description_of_a_bound_includes_its_reference(messages):
    messages.check(describe_expected(BOTH_SIDES[0]))
    messages.check(describe_expected(BOTH_SIDES[1]))


def test_expectation_of_another_system_is_skipped_with_a_remark(messages):
    verdict, case = judge_case([UNKNOWN_SYSTEM])
    assert verdict.status == "passed"
    assert [expectation["status"] for expectation in verdict.expectations] == ["skipped"]
    case.execution.expectations = verdict.expectations
    messages.check([*describe_not_judged(case)])


def test_report_has_reference_and_reason_of_a_skip():
    expect = [BOTH_SIDES[0], UNKNOWN_SYSTEM]
    verdict, _ = judge_case(expect)
    case = describe_case(np=1, expect=expect, checks=[], metrics=[TIME])
    events = [*make_started_run(case, hosts=["node01"]), rank_event("samples", values=[50.0])]
    events += [rank_event("case_end"), case_judged(expectations=verdict.expectations)]
    events += [job_end(), run_end()]
    for event in events:
        if "rank" not in event:
            check_run_event(event)
    report = build_report(build_state(events))
    jsonschema.validate(report, report_schema())
    passed, skipped = report["cases"][0]["expectations"]
    assert (passed["limit"], passed["reference"]) == (52.5, REFERENCE)
    assert (skipped["limit"], skipped["reference"]) == (None, None)
    assert skipped["reason"] == UNKNOWN_SYSTEM["skipped"]


@pytest.mark.parametrize(
    "change",
    [
        {"limit": None},
        {"reference": REFERENCE | {"value": 0}},
        {"reference": REFERENCE | {"value": None}},
        {"reference": REFERENCE | {"more": 1}},
        {"reference": {"value": 1.0}},
        {"skipped": 3},
    ],
)
def test_rejects_a_damaged_recorded_reference(change):
    with pytest.raises(EventError):
        check_run_event(run_start(describe_case(expect=[BOTH_SIDES[0] | change])))
