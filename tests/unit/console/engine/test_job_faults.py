"""The case of a job that a fault is given to, from the ranks' events to the run's verdict."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from spbench.engine.connections.rank_connection import RankIdentity
from spbench.engine.job_listener import JobListener
from spbench.engine.plan import Request
from spbench.engine.recorder import Recorder
from spbench.engine.run import Run
from spbench.engine.watchdog import Watchdog
from spbench.errors import ExitCode
from spbench.launch.jobs import Job
from spbench.record.runs.event_log import EventLog
from spbench.record.state import RunState
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS
from spbench_core.events import clock
from spbench_core.events.rank_events import encode
from spbench_core.events.statuses import LogLevel
from unit.events import described, job_start, rank_event, run_start

BENCHMARK = "link.pingpong"


class Source:
    """A rank's connection, without the connection."""

    peer = "127.0.0.1:9"

    def __init__(self, number):
        self.identity = RankIdentity("node01", 11 + number, number)
        self.rank = None
        self.ended = False
        self.answers = []

    def reply(self, **fields):
        self.answers.append(fields["reply"])


class Played:
    """A run of one job of two ranks whose events are made up, through listener, watch and run."""

    def __init__(self, home, *names, ready=True):
        settings = LaunchSettings()
        params = BENCHMARKS[BENCHMARK].complete({})
        cases = [Case(name, name, BENCHMARK, params, 2, 1, (), settings, 1) for name in names]
        self.job = Job(1, tuple(cases), 2, settings)
        self.state = RunState()
        self.log = EventLog(home / "events.jsonl")
        self.recorder = Recorder(self.log, self.state, lambda event: None)
        for event in (
            run_start(*(described(name, checks=[]) for name in names)),
            job_start(*names),
        ):
            fields = {name: event[name] for name in event if name not in ("event", "time")}
            self.recorder.record(event["event"], **fields)
        self.watch = Watchdog(
            2, [(name, 0) for name in names], 60.0, dict.fromkeys(names, 60.0), 0.0
        )
        self.listener = JobListener(self.job, self.recorder, self.watch)
        self.sources = [Source(0), Source(1)]
        for rank in (0, 1) if ready else ():
            self.say(rank, "ready")

    def say(self, rank, kind, **fields):
        event = rank_event(kind, rank, **fields)
        self.listener.on_events(self.sources[rank], [b"{}"], [event])

    def both(self, kind, **fields):
        for rank in (0, 1):
            self.say(rank, kind, **fields)

    def lose(self, rank):
        self.listener.on_lost(self.sources[rank])

    def settle(self):
        """Settle the job's fault as the run does; return the cases that are left to run."""
        request = Request(Path(), home=Path(), environ={})
        run = Run(SimpleNamespace(request=request), self.state, None)
        current = self.watch.current
        end = run._sequence.make_failure(self.job, self.watch.fault, current and current[0])
        left = run._sequence.settle(self.recorder, [end])
        self.verdict = run._judge()
        self.left = left[0] if left else None
        return [case.id for job in left for case in job.cases]

    @property
    def statuses(self):
        return {name: case.status for name, case in self.state.cases.items()}


@pytest.fixture
def job(tmp_path):
    played = Played(tmp_path, "a", "b", "c")
    yield played
    played.log.close()


ERROR = {"message": "ValueError: no", "traceback": "Traceback ..."}


def fail_in_b_while_rank_0_is_in_a(job):
    job.both("case_start", case="a")
    job.say(1, "case_end", case="a")
    job.say(1, "case_start", case="b")
    job.say(1, "case_end", case="b", status="error", error=ERROR)


def test_a_rank_does_not_choose_its_job(job):
    job.say(0, "case_start", case="a", job=99)
    assert job.watch.fault.message.endswith("sent a field 'job', which only the console adds")


def test_a_rank_below_0_is_a_fault(job):
    source = Source(-1)
    job.listener.on_events(source, [b"{}"], [rank_event("hello", -1)])
    assert job.watch.fault.message.endswith("says it is rank -1")
    assert -1 not in job.state.ranks


def test_a_text_is_recorded_and_shown_as_a_reader_of_the_log_gets_it(job):
    job.say(0, "case_start", case="a")
    event = rank_event("choice", 0, case="a", value="\x1b[2J")
    job.listener.on_events(job.sources[0], [encode(event).rstrip(b"\n")], [event])
    assert job.state.cases["a"].measured.choices["transport"]["value"] == "?[2J"


def test_a_case_begins_by_the_consoles_clock(job):
    job.say(0, "case_start", case="a")  # at 1001 s by the clock of this rank
    begun = job.state.cases["a"].verdict.started
    assert begun == pytest.approx(clock.now(), abs=60.0)
    job.say(1, "case_start", case="a")
    assert job.state.cases["a"].verdict.started == begun


def test_an_error_goes_to_the_case_it_names_though_an_earlier_end_is_read_later(job):
    fail_in_b_while_rank_0_is_in_a(job)
    job.say(0, "case_end", case="a")
    assert job.settle() == ["c"]
    assert job.statuses == {"a": "passed", "b": "error", "c": "waiting"}
    assert job.state.cases["b"].verdict.reason.endswith("into b: ValueError: no")
    assert job.state.cases["b"].verdict.traceback == "Traceback ..."


def test_an_earlier_case_whose_end_is_never_read_runs_again(job):
    fail_in_b_while_rank_0_is_in_a(job)
    assert job.settle() == ["a", "c"]
    assert job.statuses == {"a": "running", "b": "error", "c": "waiting"}


def test_a_fault_that_names_no_case_goes_to_the_one_that_was_not_through(job):
    job.both("case_start", case="a")
    job.both("case_end", case="a")
    job.lose(1)
    assert job.settle() == ["c"]
    assert job.statuses == {"a": "passed", "b": "error", "c": "waiting"}


def test_a_rank_that_ends_without_bye_after_the_last_case_makes_it_an_error(job):
    for name in ("a", "b", "c"):
        job.both("case_start", case=name)
        job.both("case_end", case=name)
    assert job.statuses["c"] == "passed"
    job.say(0, "bye")
    job.lose(1)
    assert job.settle() == []
    assert job.statuses == {"a": "passed", "b": "passed", "c": "error"}
    assert "rank 1 on node01" in job.state.cases["c"].verdict.reason
    assert job.state.cases["c"].verdict.reason.endswith("ended without an error message")
    assert job.verdict == ("error", ExitCode.ERROR)


def test_a_rank_whose_parent_has_ended_is_an_error_with_its_message(job):
    job.both("case_start", case="a")
    job.say(1, "log", level=LogLevel.ORPHANED, message="its parent process (mpispawn) has ended")
    (piece,) = job.watch.observations
    assert piece.orphaned
    assert piece.follows
    assert job.watch.tentative
    assert job.settle() == ["b", "c"]
    assert job.statuses == {"a": "error", "b": "waiting", "c": "waiting"}
    reason = job.state.cases["a"].verdict.reason
    assert reason.startswith("rank 1 on node01, ")
    assert reason.endswith(" into a: its parent process (mpispawn) has ended")


def test_a_connection_that_ends_after_its_bye_is_nothing(job):
    for name in ("a", "b", "c"):
        job.both("case_start", case=name)
        job.both("case_end", case=name)
    job.both("bye")
    job.lose(0)
    job.lose(1)
    assert job.watch.fault is None
    assert job.watch.done
    assert [source.answers[-1] for source in job.sources] == ["bye", "bye"]


def test_a_relay_that_is_gone_is_the_cause_and_no_rank_of_it(job):
    job.both("case_start", case="a")
    job.listener.on_relay_lost("node01", 2, "ended")
    job.lose(0)
    assert job.watch.fault.rank is None
    assert job.settle() == ["b", "c"]
    reason = job.state.cases["a"].verdict.reason
    assert reason == "the relay of node01 ended: the 2 ranks behind it cannot be heard"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"case": "z"}, "spoke of a case 'z' that it does not run"),
        ({"case": "a", "rank": 0}, "spoke as rank 0"),
    ],
)
def test_what_was_right_before_a_wrong_event_counts(job, wrong, why):
    job.both("case_start", case="a")
    batch = [
        rank_event("case_end", 1, case="a"),
        {**rank_event("case_start", 1, case="b"), **wrong},
        rank_event("case_end", 1, case="b"),
    ]
    job.listener.on_events(job.sources[1], [b"{}"] * 3, batch)
    job.say(0, "case_end", case="a")
    assert job.watch.fault.message == f"rank 1 on node01 {why}"
    job.settle()
    assert job.statuses == {"a": "passed", "b": "error", "c": "waiting"}


def test_a_rank_ends_only_what_it_has_started(job):
    job.say(1, "case_end", case="a")
    assert job.watch.fault.message.endswith("after the launch, ended a, which it had not started")


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([rank_event("bye", 1)], "rank ? on node01 sent bye before it was ready"),
        (
            [rank_event("hello", 1, schema="spbench.events/2")],
            "rank ? on node01 speaks 'spbench.events/2', this console 'spbench.events/1': install "
            "the same version of spbench here and on every host",
        ),
        ([rank_event("ready", -1)], "rank ? on node01 says it is rank -1 of 2"),
        ([rank_event("ready", 1), rank_event("ready", 0)], "rank 1 on node01 was ready twice"),
    ],
)
def test_a_rank_that_breaks_the_order_of_events_is_named(tmp_path, events, why):
    job = Played(tmp_path, "a", ready=False)
    job.listener.on_events(Source(1), [b"{}"] * len(events), events)
    job.log.close()
    assert job.watch.fault.message == why


def test_a_case_before_ready_is_a_violation(tmp_path):
    job = Played(tmp_path, "a")
    late = Source(1)
    job.listener.on_events(late, [b"{}"], [rank_event("case_start", 1, case="a")])
    job.log.close()
    assert job.watch.fault.message == "rank ? on node01 sent case_start before it was ready"
    assert job.statuses == {"a": "waiting"}


def test_a_defect_of_ours_is_an_error_of_its_case_and_the_others_run(job, monkeypatch):
    job.both("case_start", case="a")
    job.both("case_end", case="a")
    job.both("case_start", case="b")
    monkeypatch.setattr(job.state, "apply", lambda event: {}["unexpected"])
    job.say(1, "samples", case="b")
    monkeypatch.undo()
    assert job.listener.failure is None
    assert job.settle() == ["c"]
    assert job.statuses == {"a": "passed", "b": "error", "c": "waiting"}
    verdict = job.state.cases["b"].verdict
    assert verdict.reason.startswith("a defect of spbench at engine/recorder.py:")
    assert "KeyError" in verdict.traceback
    assert job.verdict == ("error", ExitCode.ERROR)


@pytest.mark.parametrize("repeat", [-1, 1, 10**9])
def test_a_rank_speaks_only_of_the_repeats_it_was_given(job, repeat):
    job.both("case_start", case="a")
    job.say(1, "case_end", case="a", repeat=repeat)
    assert job.watch.fault.message == f"rank 1 on node01 spoke of repeat {repeat} of a"


def test_a_job_that_dies_before_any_case_gives_the_fault_to_the_first_and_the_rest_goes_on(job):
    job.lose(1)
    assert job.settle() == ["b", "c"]
    assert job.statuses == {"a": "error", "b": "waiting", "c": "waiting"}
    assert job.left.deaths == 1


def test_a_job_that_dies_twice_before_any_case_is_not_started_a_third_time(job):
    job.job = replace(job.job, deaths=1)
    job.lose(1)
    assert job.settle() == []
    assert set(job.statuses.values()) == {"error"}
    assert job.state.cases["c"].verdict.reason.endswith("it is not started a third time")


def test_a_job_that_has_started_a_case_may_die_before_one_again(job):
    job.job = replace(job.job, deaths=1)
    job.both("case_start", case="a")
    job.lose(1)
    assert job.settle() == ["b", "c"]
    assert job.left.deaths == 0


def test_what_is_missing_before_any_case_is_missing_for_all(job):
    job.say(1, "log", level="error", message="ModuleNotFoundError: No module named 'torch'")
    assert job.settle() == []
    assert set(job.statuses.values()) == {"error"}
    assert job.verdict == ("error", ExitCode.MISSING)
