"""The trace of a run: phases of all ranks on a common clock."""

import json
import shutil
from dataclasses import replace
from importlib.resources import files

import pytest

from spbench.errors import UsageError
from spbench.record.runs.folder import RunFolder
from spbench.report.formats.trace.clocks import JobClocks
from spbench.report.formats.trace.events import render_trace
from spbench.report.formats.trace.spans import RunSpans
from spbench.report.recorded import load_run
from support.sample_events import (
    case_judged,
    describe_case,
    job_end,
    job_start,
    rank_event,
    record_run,
    run_end,
    run_resumed,
    run_start,
)
from support.sample_runs import make_run

AHEAD = 5.0
"""Offset of the clock of node02 in these tests, in seconds."""
HOSTS = ("login", "node02")
WAIT = 0.001
"""Maximum wait of a rank at a collective, in seconds."""


def add_event(events, kind, rank, time, **fields):
    """Add an event of a rank, stamped by the clock of its host."""
    stamp = time + (AHEAD if HOSTS[rank] == "node02" else 0.0)
    events.append(rank_event(kind, rank, time=stamp, job=1, **fields))


def two_rank_events(case="a"):
    """Return a run on the console's host and on a host with a clock ahead."""
    events = [run_start(describe_case(case, checks=[])), job_start(case)]
    for rank, host in enumerate(HOSTS):
        add_event(events, "hello", rank, 1001.0 + rank / 10, host=host)
        add_event(events, "ready", rank, 1002.0 + rank / 10, host=host)
    for rank in (0, 1):
        add_event(events, "case_start", rank, 1003.0, case=case)
        add_event(events, "progress", rank, 1003.2 - rank * WAIT, case=case, phase="warmup", done=0)
    for rank in (0, 1):
        add_event(events, "progress", rank, 1003.2 + WAIT, case=case, phase="timing", done=0)
    for batch in (1, 2):
        now = 1003.2 + batch / 10
        for rank in (0, 1):
            add_event(events, "samples", rank, now - rank * WAIT, case=case, values=[20.0, 30.0])
        for rank in (0, 1):
            add_event(
                events, "progress", rank, now + WAIT, case=case, phase="timing", done=2 * batch
            )
    for rank in (0, 1):
        add_event(events, "case_end", rank, 1003.5, case=case)
        add_event(events, "bye", rank, 1003.6)
    events.append(case_judged(case) | {"time": 1003.7})
    events.append(job_end() | {"time": 1004.0})
    return [*events, run_end() | {"time": 1004.1}]


def collect_spans(events):
    spans = RunSpans()
    spans.add_events(events)
    return spans


def load_trace(folder):
    return json.loads(render_trace(load_run(folder)))


def select_slices(document, thread, process=None):
    """Return the slices of a thread by start, the longest first."""
    slices = [
        event
        for event in document["traceEvents"]
        if event["ph"] == "X" and event["tid"] == thread and process in (None, event["pid"])
    ]
    return sorted(slices, key=lambda event: (event["ts"], -event["dur"]))


def test_nests_phases_in_cases_and_batches_in_phases(tmp_path):
    document = load_trace(record_run(tmp_path, two_rank_events()))
    slices = select_slices(document, 1)
    assert [event["name"] for event in slices] == [
        "start",
        "a",
        "warmup",
        "timing",
        "2 iterations",
        "2 iterations",
    ]
    batch = slices[-1]
    assert batch["dur"] == pytest.approx(50_000)
    assert batch["args"] == {"median_ms": 25.0, "max_ms": 30.0, "job": 1}


def test_collectives_determine_the_offset_of_a_clock(tmp_path, messages):
    offset = collect_spans(two_rank_events()).clocks[1].estimate_offsets()["node02"]
    assert offset.seconds == pytest.approx(AHEAD, abs=offset.error)
    assert offset.error <= 1.5 * WAIT
    document = load_trace(record_run(tmp_path, two_rank_events()))
    first, second = (
        next(event for event in select_slices(document, thread) if event["name"] == "a")
        for thread in (1, 2)
    )
    assert second["ts"] == pytest.approx(first["ts"], abs=2e6 * WAIT)
    messages.check(document["otherData"]["clocks"][1])
    (name,) = (
        event["args"]["name"] for event in document["traceEvents"] if "node02" in str(event["args"])
    )
    messages.check(name)


def test_order_of_events_bounds_a_clock_without_collectives(messages):
    clocks = JobClocks("login", 1000.0)
    clocks.note_rank_event("node02", 1002.0 + AHEAD)
    clocks.note_rank_event("node02", 1003.0 + AHEAD)
    clocks.note_console_event(1003.5)
    offset = clocks.estimate_offsets()["node02"]
    assert offset.seconds - offset.error <= AHEAD <= offset.seconds + offset.error
    assert offset.error == pytest.approx(1.25)
    messages.check(offset.method)


def test_clocks_that_may_be_equal_have_no_offset():
    clocks = JobClocks("login", 1000.0)
    clocks.note_rank_event("node02", 1002.0)
    clocks.note_console_event(1003.5)
    offset = clocks.estimate_offsets()["node02"]
    assert (offset.seconds, offset.error) == (0.0, 2.0)


def test_ignores_contradictory_collectives(messages):
    clocks = JobClocks("login", 1000.0)
    for host in ("login", "node02"):
        clocks.note_rank_event(host, 1001.0)
    for collective, ahead in enumerate((0.0, 5.0)):
        clocks.note_collective(collective, "login", 1001.0, 1001.1)
        clocks.note_collective(collective, "node02", 1001.0 + ahead, 1001.1 + ahead)
    clocks.note_console_event(1002.0)
    messages.check(clocks.estimate_offsets()["node02"].method)


def test_clocks_of_a_batch_job_have_no_error_bound(messages):
    clocks = JobClocks("login", 1000.0)
    clocks.note_rank_event("node01", 1001.0)
    clocks.note_console_event(1002.0)
    offset = clocks.estimate_offsets(in_order=False)["node01"]
    assert (offset.seconds, offset.error) == (0.0, None)
    messages.check(offset.description)


def test_shared_clock_of_hosts_has_no_offset(tmp_path):
    # The demo was recorded in network namespaces of one machine, which share its clock.
    spans = collect_spans(load_events(RunFolder(files("spbench") / "demo")))
    offsets = spans.clocks[1].estimate_offsets()
    assert set(offsets) == {"sim01", "sim02"}
    for offset in offsets.values():
        assert abs(offset.seconds) <= offset.error
    assert sum(offset.error < 0.01 for offset in offsets.values()) == 1


def load_events(folder):
    with open(folder.events) as log:
        return [json.loads(line) for line in log]


def test_slices_of_a_thread_nest(tmp_path):
    shutil.copytree(str(files("spbench") / "demo"), tmp_path / "demo")
    document = load_trace(RunFolder(tmp_path / "demo"))
    threads = {(event["pid"], event["tid"]) for event in document["traceEvents"]}
    for process, thread in threads:
        open_ends = []
        for event in select_slices(document, thread, process):
            while open_ends and open_ends[-1] <= event["ts"] + 0.01:
                open_ends.pop()
            end = event["ts"] + event["dur"]
            assert not open_ends or end <= open_ends[-1] + 0.01, event
            assert event["ts"] >= 0
            open_ends.append(end)


def test_slices_of_a_lost_rank_are_closed(messages):
    events = two_rank_events()[:-7]
    lost = {"event": "rank_lost", "time": 1003.6, "job": 1, "rank": 1, "host": "node02"}
    spans = collect_spans([*events, lost | {"reason": "killed"}, job_end("rank 1 died")])
    cases = [span for span in spans.spans if span.kind == "case"]
    assert {(span.rank, span.details["status"]) for span in cases} == {(0, "cut"), (1, "cut")}
    messages.check([span.name for span in spans.spans if span.kind == "lost"])


def two_job_events():
    """Return a run with a job on each of two hosts, which run at once."""
    jobs = (1, 2)
    steps = (("ready", 1003.0), ("case_start", 1004.0), ("progress", 1005.0), ("case_end", 1006.0))
    return [
        run_start(describe_case("a", checks=[])),
        *(
            job_start("a", np=1, job=job, first_rank=job - 1) | {"time": 1000.0 + job}
            for job in jobs
        ),
        *(
            rank_event(kind, job - 1, time=time, job=job, host=HOSTS[job - 1])
            for kind, time in steps
            for job in jobs
        ),
        *(job_end() | {"job": job, "time": 1006.0 + job} for job in jobs),
        run_end() | {"time": 1009.0},
    ]


def test_jobs_that_run_at_once_keep_their_ranks():
    spans = collect_spans(two_job_events()).spans
    cases = {(span.job, span.rank, span.details["status"]) for span in spans if span.kind == "case"}
    assert cases == {(1, 0, "ok"), (2, 1, "ok")}
    jobs = {span.job: span for span in spans if span.kind == "job"}
    assert {number: (job.start, job.end) for number, job in jobs.items()} == {
        1: (1001.0, 1007.0),
        2: (1002.0, 1008.0),
    }
    assert jobs[1].lane != jobs[2].lane


def test_resuming_a_run_ends_its_open_jobs():
    events = two_rank_events()[:-3]
    resumed = run_resumed("a") | {"time": 1010.0}
    later_job = [job_start("a", job=2) | {"time": 1011.0}, job_end() | {"job": 2, "time": 1012.0}]
    jobs = [
        span for span in collect_spans([*events, resumed, *later_job]).spans if span.kind == "job"
    ]
    assert [(job.job, job.end, job.details) for job in jobs] == [
        (1, 1010.0, {"reason": "cut"}),
        (2, 1012.0, {}),
    ]


def test_failed_check_and_verdict_are_instants():
    events = two_rank_events()
    add_event(events, "check", 0, 1003.4, passed=False, detail="at 3")
    spans = collect_spans([*events[:-8], events[-1], *events[-8:-1]])
    instants = {(span.name, span.rank) for span in spans.spans if span.end is None}
    assert instants == {("check halo failed", 0), ("a: passed", None)}


def test_hostile_names_are_escaped(tmp_path):
    hostile = '"}]\x1b[2J<b>'
    text = render_trace(load_run(record_run(tmp_path, two_rank_events(hostile))))
    assert "\x1b" not in text
    names = {event["name"] for event in json.loads(text)["traceEvents"]}
    assert '"}]?[2J<b>' in names


def test_rejects_a_run_without_events(tmp_path, messages):
    with messages.raises(UsageError):
        render_trace(replace(make_run(folder=RunFolder(tmp_path))))
