"""The trace of a run: what each rank did when, on one clock."""

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
from unit.events import (
    described,
    job_end,
    job_start,
    judged,
    rank_event,
    recorded,
    run_end,
    run_start,
)
from unit.results import run

AHEAD = 5.0
"""Seconds by which the clock of node02 is ahead in these tests."""
HOSTS = ("login", "node02")
WAIT = 0.001
"""Seconds that a rank waits at a collective for the others, at most."""


def said(events, kind, rank, time, **fields):
    """Add an event of a rank, stamped by the clock of its host."""
    stamp = time + (AHEAD if HOSTS[rank] == "node02" else 0.0)
    events.append(rank_event(kind, rank, time=stamp, job=1, **fields))


def two_ranks(case="a"):
    """A run on the console's host and on one whose clock is ahead."""
    events = [run_start(described(case, checks=[])), job_start(case)]
    for rank, host in enumerate(HOSTS):
        said(events, "hello", rank, 1001.0 + rank / 10, host=host)
        said(events, "ready", rank, 1002.0 + rank / 10, host=host)
    for rank in (0, 1):
        said(events, "case_start", rank, 1003.0, case=case)
        said(events, "progress", rank, 1003.2 - rank * WAIT, case=case, phase="warmup", done=0)
    for rank in (0, 1):
        said(events, "progress", rank, 1003.2 + WAIT, case=case, phase="timing", done=0)
    for batch in (1, 2):
        now = 1003.2 + batch / 10
        for rank in (0, 1):
            said(events, "samples", rank, now - rank * WAIT, case=case, values=[20.0, 30.0])
        for rank in (0, 1):
            said(events, "progress", rank, now + WAIT, case=case, phase="timing", done=2 * batch)
    for rank in (0, 1):
        said(events, "case_end", rank, 1003.5, case=case)
        said(events, "bye", rank, 1003.6)
    events.append(judged(case) | {"time": 1003.7})
    events.append(job_end() | {"time": 1004.0})
    return [*events, run_end() | {"time": 1004.1}]


def spans_of(events):
    found = RunSpans()
    found.add_events(events)
    return found


def traced(folder):
    return json.loads(render_trace(load_run(folder)))


def slices(document, thread, process=None):
    """The slices of a thread, in the order of their starts, the longest first."""
    found = [
        event
        for event in document["traceEvents"]
        if event["ph"] == "X" and event["tid"] == thread and process in (None, event["pid"])
    ]
    return sorted(found, key=lambda event: (event["ts"], -event["dur"]))


def test_phases_stand_within_cases_and_batches_within_phases(tmp_path):
    document = traced(recorded(tmp_path, two_ranks()))
    found = slices(document, 1)
    assert [event["name"] for event in found] == [
        "start",
        "a",
        "warmup",
        "timing",
        "2 iterations",
        "2 iterations",
    ]
    batch = found[-1]
    assert batch["dur"] == pytest.approx(50_000)
    assert batch["args"] == {"median_ms": 25.0, "max_ms": 30.0, "job": 1}


def test_a_clock_that_is_ahead_is_found_by_collectives(tmp_path):
    offset = spans_of(two_ranks()).clocks[1].estimate_offsets()["node02"]
    assert offset.seconds == pytest.approx(AHEAD, abs=offset.error)
    assert offset.error <= 1.5 * WAIT
    document = traced(recorded(tmp_path, two_ranks()))
    first, second = (next(e for e in slices(document, of) if e["name"] == "a") for of in (1, 2))
    assert second["ts"] == pytest.approx(first["ts"], abs=2e6 * WAIT)
    assert "job 1, node02: clock 5.00 s ahead, ± " in document["otherData"]["clocks"][1]
    (name,) = (e["args"]["name"] for e in document["traceEvents"] if "node02" in str(e["args"]))
    assert name.startswith("node02, clock 5.00 s ahead, ± ")


def test_without_collectives_the_order_of_events_bounds_a_clock():
    clocks = JobClocks("login", 1000.0)
    clocks.note_rank_event("node02", 1002.0 + AHEAD)
    clocks.note_rank_event("node02", 1003.0 + AHEAD)
    clocks.note_console_event(1003.5)
    offset = clocks.estimate_offsets()["node02"]
    assert offset.seconds - offset.error <= AHEAD <= offset.seconds + offset.error
    assert offset.error == pytest.approx(1.25)
    assert offset.method == "by the order of events"


def test_clocks_that_may_be_equal_are_taken_as_equal_then():
    clocks = JobClocks("login", 1000.0)
    clocks.note_rank_event("node02", 1002.0)
    clocks.note_console_event(1003.5)
    offset = clocks.estimate_offsets()["node02"]
    assert (offset.seconds, offset.error) == (0.0, 2.0)


def test_meetings_that_contradict_each_other_are_not_believed():
    clocks = JobClocks("login", 1000.0)
    for host in ("login", "node02"):
        clocks.note_rank_event(host, 1001.0)
    for meeting, ahead in enumerate((0.0, 5.0)):
        clocks.note_meeting(meeting, "login", 1001.0, 1001.1)
        clocks.note_meeting(meeting, "node02", 1001.0 + ahead, 1001.1 + ahead)
    clocks.note_console_event(1002.0)
    assert clocks.estimate_offsets()["node02"].method == "by the order of events"


def test_a_batch_jobs_clocks_have_no_console_to_hold_them_against():
    clocks = JobClocks("login", 1000.0)
    clocks.note_rank_event("node01", 1001.0)
    clocks.note_console_event(1002.0)
    offset = clocks.estimate_offsets(in_order=False)["node01"]
    assert (offset.seconds, offset.error) == (0.0, None)
    assert "error not known" in offset.description


def test_clocks_of_hosts_that_share_one_are_found_equal(tmp_path):
    # The demo was recorded on hosts in network namespaces of one machine, whose clock they have.
    found = spans_of(load_events(RunFolder(files("spbench") / "demo")))
    offsets = found.clocks[1].estimate_offsets()
    assert set(offsets) == {"sim01", "sim02"}
    for offset in offsets.values():
        assert abs(offset.seconds) <= offset.error
    assert sum(offset.error < 0.01 for offset in offsets.values()) == 1


def load_events(folder):
    with open(folder.events) as log:
        return [json.loads(line) for line in log]


def test_slices_of_a_thread_nest(tmp_path):
    shutil.copytree(str(files("spbench") / "demo"), tmp_path / "demo")
    document = traced(RunFolder(tmp_path / "demo"))
    threads = {(event["pid"], event["tid"]) for event in document["traceEvents"]}
    for process, thread in threads:
        open_ends = []
        for event in slices(document, thread, process):
            while open_ends and open_ends[-1] <= event["ts"] + 0.01:
                open_ends.pop()
            ends = event["ts"] + event["dur"]
            assert not open_ends or ends <= open_ends[-1] + 0.01, event
            assert event["ts"] >= 0
            open_ends.append(ends)


def test_what_a_lost_rank_did_is_closed_and_told():
    events = two_ranks()[:-7]
    lost = {"event": "rank_lost", "time": 1003.6, "job": 1, "rank": 1, "host": "node02"}
    found = spans_of([*events, lost | {"reason": "killed"}, job_end("rank 1 died")])
    cases = [span for span in found.spans if span.kind == "case"]
    assert {(span.rank, span.details["status"]) for span in cases} == {(0, "cut"), (1, "cut")}
    assert [span.name for span in found.spans if span.kind == "lost"] == ["rank 1 on node02 lost"]


def test_a_failed_check_and_a_verdict_are_moments():
    events = two_ranks()
    said(events, "check", 0, 1003.4, passed=False, detail="at 3")
    found = spans_of([*events[:-8], events[-1], *events[-8:-1]])
    moments = {(span.name, span.rank) for span in found.spans if span.end is None}
    assert moments == {("check halo failed", 0), ("a: passed", None)}


def test_names_are_data(tmp_path):
    hostile = '"}]\x1b[2J<b>'
    text = render_trace(load_run(recorded(tmp_path, two_ranks(hostile))))
    assert "\x1b" not in text
    names = {event["name"] for event in json.loads(text)["traceEvents"]}
    assert '"}]?[2J<b>' in names


def test_without_events_there_is_no_trace(tmp_path):
    with pytest.raises(UsageError, match="there are none at"):
        render_trace(replace(run(folder=RunFolder(tmp_path))))
