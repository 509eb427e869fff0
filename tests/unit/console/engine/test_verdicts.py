"""Verdicts are told once, when a case and those that it is held against have ended."""

from spbench.engine.recorder import Recorder
from spbench.engine.verdicts import record_verdicts
from spbench.record.case_figures import is_open
from spbench.record.runs.event_log import EventLog
from unit.events import described, judged, rank_event, started, state_of


def expecting(case, other):
    item = {
        "metric": "time_ms",
        "op": "max",
        "limit": None,
        "expression": f"9 * case({other}).time_ms",
    }
    return described(case, np=1, checks=[], expect=[item])


def ended(case):
    yield rank_event("case_start", case=case)
    yield rank_event("samples", case=case)
    yield rank_event("case_end", case=case)


def told(tmp_path, cases, order):
    """Which cases are judged after each of these has ended."""
    state = state_of(started(*cases, hosts=["node01"])[:2])
    said = []
    recorder = Recorder(EventLog(tmp_path / "events.jsonl"), state, said.append)
    for case in order:
        for event in ended(case):
            state.apply(event)
        record_verdicts(recorder, case)
        said.append(case)
    return [word if isinstance(word, str) else ("judged", word["case"]) for word in said], recorder


def test_a_case_waits_for_the_one_that_it_is_held_against(tmp_path):
    cases = [expecting("a", "b"), described("b", np=1, checks=[]), described("c", np=1, checks=[])]
    words, _ = told(tmp_path, cases, "acb")
    assert words == ["a", ("judged", "c"), "c", ("judged", "b"), ("judged", "a"), "b"]


def test_cases_that_refer_to_each_other_are_judged_when_both_have_ended(tmp_path):
    words, _ = told(tmp_path, [expecting("a", "b"), expecting("b", "a")], "ab")
    assert words == ["a", ("judged", "a"), ("judged", "b"), "b"]


def test_a_case_that_waits_is_not_run_again_and_hears_of_an_error(tmp_path):
    cases = [expecting("a", "b"), described("b", np=1, checks=[])]
    words, recorder = told(tmp_path, cases, "a")
    state = recorder.state
    assert (words, state.cases["a"].status, is_open(state.cases["a"])) == (["a"], "running", False)
    recorder.state.apply(judged("b", "error", "it died"))
    record_verdicts(recorder)
    assert state.cases["a"].status == "failed"
    assert state.cases["a"].verdict.reason.endswith("cannot be judged: case b ended in error")
