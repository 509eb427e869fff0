"""Events that the state machines forbid are ignored, counted and a finding."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.engine.recorder import Recorder
from spbench.record.findings import collect_findings
from spbench.record.runs.event_log import EventLog, decode, encode
from spbench.record.runs.follow import LogCheck
from spbench.record.state import RunState
from spbench.report.build import build_report
from spbench_core.events.statuses import CaseStatus, JobStatus, RankPhase
from support.sample_events import (
    build_state,
    case_judged,
    describe_case,
    job_end,
    job_start,
    make_complete_run,
    make_started_run,
    rank_event,
    retry,
    run_end,
    run_resumed,
    run_start,
)

TWO_CASES = (describe_case("a"), describe_case("b"))
STARTED = make_started_run(*TWO_CASES)
DONE = [*STARTED, rank_event("case_end", 0), rank_event("case_end", 1)]
ILLEGAL = {
    "samples of another case": (STARTED, rank_event("samples", 0, case="b")),
    "a check after the end": (DONE, rank_event("check", 0)),
    "progress of a rank that is not ready": (STARTED[:2], rank_event("progress", 0)),
    "ready twice": (STARTED, rank_event("ready", 0)),
    "the end of a case twice": (DONE, rank_event("case_end", 0)),
    "a start after bye": ([*DONE, rank_event("bye", 0)], rank_event("case_start", 0, case="b")),
    "a start after the verdict": ([*DONE, case_judged("a")], rank_event("case_start", 0)),
    "bye twice": ([*DONE, rank_event("bye", 0)], rank_event("bye", 0)),
    "a retry of a case that passed": ([*DONE, case_judged("a")], retry("a")),
    "a job that runs already": (STARTED, job_start("a")),
    "the end of a job twice": ([*DONE, job_end()], job_end()),
    "a start after the end of its job": (
        [*DONE, job_end()],
        rank_event("case_start", 0, case="b", job=1),
    ),
}


def collect_shown_facts(state):
    """Return the facts that views show, without the finding on ignored events."""
    report = build_report(state)
    report["run"]["findings"] = []
    ranks = {
        number: replace(rank, last_heard=0.0, facts=rank.facts)
        for number, rank in state.ranks.items()
        if rank.case is not None
    }
    jobs = {number: (job.status, job.finished) for number, job in state.jobs.items()}
    return report, ranks, jobs


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_event_changes_nothing_and_becomes_a_finding(name):
    events, illegal = ILLEGAL[name]
    state = build_state([*events, illegal])
    assert collect_shown_facts(state) == collect_shown_facts(build_state(events))
    assert state.ignored.count == 1
    assert state.ignored.first.startswith(illegal["event"])
    assert state.ignored.finding in collect_findings(state)
    assert state.ignored.finding in build_report(state)["run"]["findings"]


def test_legal_events_give_no_finding():
    state = build_state(make_complete_run())
    assert (state.ignored.count, state.ignored.finding) == (0, None)


def test_counts_illegal_events_in_one_finding(messages):
    state = build_state([*STARTED, *[rank_event("samples", 0, case="b")] * 3])
    messages.check(state.ignored.finding)


def test_finding_in_run_end_is_not_repeated():
    events = [*STARTED, rank_event("ready", 0)]
    finding = build_state(events).ignored.finding
    assert build_state([*events, run_end(findings=[finding])]).findings == [finding]


def test_replay_of_illegal_events_gives_the_same_finding(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    live = RunState()
    recorder = Recorder(log, live, lambda event: None)
    for event in [*STARTED, rank_event("samples", 0, case="b")]:
        if "rank" in event:
            recorder.record_batch(1, [encode_without_newline(event)], [dict(event)])
        else:
            fields = {name: event[name] for name in event if name not in ("event", "time")}
            recorder.record(event["event"], **fields)
    log.close()
    lines = (tmp_path / "events.jsonl").read_bytes().splitlines()
    replayed = build_state([decode(line) for line in lines])
    assert replayed.ignored == live.ignored
    assert live.ignored.count == 1


def encode_without_newline(event):
    return encode(event).rstrip(b"\n")


def test_missing_event_makes_no_later_event_illegal():
    """One incomplete line must not make all later lines of its rank illegal."""
    for missing in range(2, len(STARTED)):
        events = [event for index, event in enumerate(STARTED) if index != missing]
        state = build_state([*events, rank_event("case_start", 0, case="b")])
        assert (missing, state.ignored.count) == (missing, 0)


def test_case_on_each_host_may_start_after_it_was_judged():
    """One of its launches failed before another one began."""
    shared = describe_case("a", shares=[1, 1])
    events = [
        run_start(shared),
        job_start("a", np=1, first_rank=0),
        case_judged("a", "error", "no"),
    ]
    other = [job_start("a", np=1, job=2, first_rank=1), rank_event("case_start", 1, job=2)]
    state = build_state([*events, *other])
    assert state.cases["a"].status == CaseStatus.ERROR
    assert state.ignored.count == 0


def test_resumed_run_ends_interrupted_jobs():
    state = build_state([*STARTED, run_resumed("a", "b"), job_start("a", "b")])
    assert state.jobs[1].status == JobStatus.STARTING
    assert state.ignored.count == 0


def test_job_is_running_once_all_its_ranks_are_ready():
    assert build_state(STARTED[:3]).jobs[1].status == JobStatus.STARTING
    assert build_state(STARTED[:4]).jobs[1].status == JobStatus.RUNNING
    assert build_state([*DONE, job_end()]).jobs[1].status == JobStatus.ENDED


def test_progress_event_sets_the_phase_of_its_rank():
    state = build_state([*STARTED, rank_event("progress", 0, phase="check")])
    assert (state.ranks[0].phase, state.ranks[0].shown_phase) == (RankPhase.WORKING, "check")
    assert (state.ranks[1].phase, state.ranks[1].shown_phase) == (RankPhase.SETUP, "setup")


KINDS = [
    *("hello", "ready", "case_start", "progress", "samples", "check", "metric", "device"),
    *("choice", "log", "case_end", "heartbeat", "bye"),
]
RANK_EVENTS = st.builds(
    lambda kind, rank, case: {
        **rank_event(kind, rank),
        **({"case": case} if "case" in rank_event(kind) else {}),
        "job": 1,
    },
    st.sampled_from(KINDS),
    st.integers(0, 2),
    st.sampled_from("ab"),
)
RANK_LOST = {"event": "rank_lost", "time": 1.0, "job": 1, "rank": 1, "host": "h", "reason": "dead"}
OTHER_EVENTS = st.sampled_from(
    [
        case_judged("a"),
        case_judged("b", "error", "no"),
        retry("b"),
        run_resumed("a"),
        job_end(),
        run_end(),
        RANK_LOST,
    ]
)


@given(st.lists(RANK_EVENTS | OTHER_EVENTS, max_size=30))
def test_no_order_of_events_raises(events):
    check = LogCheck()
    state = RunState()
    for event in [run_start(*TWO_CASES), job_start("a", "b"), *events]:
        if check.accepts(event):
            state.apply(event)
    build_report(state)
    collect_findings(state)
