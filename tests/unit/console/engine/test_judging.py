"""The status of a case is recorded once, after the cases it refers to."""

from spbench.engine.judging import judge_ready_cases
from spbench.engine.recorder import Recorder
from spbench.record.case_figures import is_open
from spbench.record.runs.event_log import EventLog
from support.sample_events import (
    build_state,
    case_judged,
    describe_case,
    make_started_run,
    rank_event,
)


def case_referring_to(case, other):
    expectation = {
        "metric": "time_ms",
        "op": "max",
        "limit": None,
        "expression": f"9 * case({other}).time_ms",
    }
    return describe_case(case, np=1, checks=[], expect=[expectation])


def case_events(case):
    yield rank_event("case_start", case=case)
    yield rank_event("samples", case=case)
    yield rank_event("case_end", case=case)


def judge_in_order(tmp_path, cases, order):
    """End cases in an order; return ended and judged cases in sequence."""
    state = build_state(make_started_run(*cases, hosts=["node01"])[:2])
    log = []
    recorder = Recorder(EventLog(tmp_path / "events.jsonl"), state, log.append)
    for case in order:
        for event in case_events(case):
            state.apply(event)
        judge_ready_cases(recorder, case)
        log.append(case)
    return [
        entry if isinstance(entry, str) else ("judged", entry["case"]) for entry in log
    ], recorder


def test_case_is_judged_after_the_one_it_refers_to(tmp_path):
    cases = [
        case_referring_to("a", "b"),
        describe_case("b", np=1, checks=[]),
        describe_case("c", np=1, checks=[]),
    ]
    sequence, _ = judge_in_order(tmp_path, cases, "acb")
    assert sequence == ["a", ("judged", "c"), "c", ("judged", "b"), ("judged", "a"), "b"]


def test_cases_that_refer_to_each_other_are_judged_together(tmp_path):
    sequence, _ = judge_in_order(
        tmp_path, [case_referring_to("a", "b"), case_referring_to("b", "a")], "ab"
    )
    assert sequence == ["a", ("judged", "a"), ("judged", "b"), "b"]


def test_waiting_case_fails_if_the_other_case_has_an_error(tmp_path):
    cases = [case_referring_to("a", "b"), describe_case("b", np=1, checks=[])]
    sequence, recorder = judge_in_order(tmp_path, cases, "a")
    state = recorder.state
    assert (sequence, state.cases["a"].status, is_open(state.cases["a"])) == (
        ["a"],
        "running",
        False,
    )
    recorder.state.apply(case_judged("b", "error", "it died"))
    judge_ready_cases(recorder)
    assert state.cases["a"].status == "failed"
    assert state.cases["a"].execution.reason.endswith("cannot be judged: case b ended in error")
