"""Faults of a job, from events of ranks to verdicts of cases and the run."""

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
from spbench.record.planted_faults import FaultOutcome
from spbench.record.runs.event_log import EventLog
from spbench.record.state import RunState
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.planted_fault import RAISED_TEXT
from spbench_core.events import fields as event_fields
from spbench_core.events.rank_events import encode
from spbench_core.events.statuses import LogLevel, RunStatus
from support.sample_events import case_judged, describe_case, job_start, rank_event, run_start

BENCHMARK = "link.pingpong"


class StandInConnection:
    """A stand-in for the connection of a rank."""

    peer = "127.0.0.1:9"

    def __init__(self, number):
        self.identity = RankIdentity("node01", 11 + number, number)
        self.rank = None
        self.ended = False
        self.answers = []

    def reply(self, **fields):
        self.answers.append(fields["reply"])


class SimulatedJob:
    """A run of one job of two simulated ranks, through listener, watchdog and run."""

    def __init__(self, home, *names, ready=True, first_rank=0, inject=None):
        settings = LaunchSettings()
        params = BENCHMARKS[BENCHMARK].complete({})
        cases = [Case(name, name, BENCHMARK, params, 2, 1, (), settings, 1) for name in names]
        self.job = Job(1, tuple(cases), 2, settings, first_rank=first_rank)
        self.state = RunState()
        self.log = EventLog(home / "events.jsonl")
        self.recorder = Recorder(self.log, self.state, lambda event: None)
        for event in (
            run_start(*(describe_case(name, checks=[], inject=inject) for name in names)),
            job_start(*names),
        ):
            fields = {name: event[name] for name in event if name not in ("event", "time")}
            self.recorder.record(event["event"], **fields)
        self.watch = Watchdog(
            2, [(name, 0) for name in names], 60.0, dict.fromkeys(names, 60.0), 0.0
        )
        self.listener = JobListener(self.job, self.recorder, self.watch)
        self.sources = [StandInConnection(0), StandInConnection(1)]
        for rank in (0, 1) if ready else ():
            self.send(rank, "ready")

    def send(self, rank, kind, **fields):
        event = rank_event(kind, rank, **fields)
        self.listener.on_events(self.sources[rank], [b"{}"], [event])

    def send_from_both(self, kind, **fields):
        for rank in (0, 1):
            self.send(rank, kind, **fields)

    def lose(self, rank):
        self.listener.on_lost(self.sources[rank])

    def settle(self):
        """Settle the fault of the job like the run; return the cases left to run."""
        request = Request(Path(), home=Path(), environ={})
        run = Run(SimpleNamespace(request=request), self.state, None)
        current = self.watch.current
        end = run._sequence.make_failure(self.job, self.watch.fault, current and current[0])
        remaining = run._sequence.record_failures(self.recorder, [end])
        self.verdict = run._judge()
        self.remaining = remaining[0] if remaining else None
        return [case.id for job in remaining for case in job.cases]

    @property
    def statuses(self):
        return {name: case.status for name, case in self.state.cases.items()}


@pytest.fixture
def job(tmp_path):
    simulated = SimulatedJob(tmp_path, "a", "b", "c")
    yield simulated
    simulated.log.close()


RAISED = f"InjectedFaultError: {RAISED_TEXT}"
ERROR = {"message": "ValueError: no", "traceback": "Traceback ..."}


def fail_in_b_while_rank_0_is_in_a(job):
    job.send_from_both("case_start", case="a")
    job.send(1, "case_end", case="a")
    job.send(1, "case_start", case="b")
    job.send(1, "case_end", case="b", status="error", error=ERROR)


def test_rejects_a_job_field_from_a_rank(job):
    job.send(0, "case_start", case="a", job=99)
    assert job.watch.fault.message.endswith("sent a field 'job', which only the console adds")


def test_negative_rank_is_a_fault(job):
    source = StandInConnection(-1)
    job.listener.on_events(source, [b"{}"], [rank_event("hello", -1)])
    assert job.watch.fault.message.endswith("says it is rank -1")
    assert -1 not in job.state.ranks


def test_state_has_the_text_that_the_log_gives(job):
    job.send(0, "case_start", case="a")
    event = rank_event("choice", 0, case="a", value="\x1b[2J")
    job.listener.on_events(job.sources[0], [encode(event).rstrip(b"\n")], [event])
    assert job.state.cases["a"].measured.choices["transport"]["value"] == "?[2J"


def test_case_starts_by_the_clock_of_the_console(job):
    job.send(0, "case_start", case="a")  # the clock of this rank is at 1001 s
    started = job.state.cases["a"].execution.started
    assert started == pytest.approx(event_fields.now(), abs=60.0)
    job.send(1, "case_start", case="a")
    assert job.state.cases["a"].execution.started == started


def test_error_belongs_to_the_case_it_names(job):
    fail_in_b_while_rank_0_is_in_a(job)
    job.send(0, "case_end", case="a")
    assert job.settle() == ["c"]
    assert job.statuses == {"a": "passed", "b": "error", "c": "waiting"}
    assert job.state.cases["b"].execution.reason.endswith("into b: ValueError: no")
    assert job.state.cases["b"].execution.traceback == "Traceback ..."


def test_case_without_an_end_runs_again(job):
    fail_in_b_while_rank_0_is_in_a(job)
    assert job.settle() == ["a", "c"]
    assert job.statuses == {"a": "running", "b": "error", "c": "waiting"}


@pytest.mark.parametrize(
    ("inject", "message", "is_found"),
    [
        ("raise", RAISED, True),
        ("raise,rank=1", RAISED, True),
        ("raise,rank=0", RAISED, False),
        ("exit", "SystemExit: 3", True),
        ("exit", "SystemExit: 4", False),
        ("exit", RAISED, False),
        ("raise", "ValueError: no", False),
        (None, RAISED, False),
    ],
)
def test_error_of_a_planted_fault_is_found_on_its_rank(tmp_path, inject, message, is_found):
    job = SimulatedJob(tmp_path, "a", "b", inject=inject)
    job.send_from_both("case_start", case="a")
    job.send(1, "case_end", case="a", status="error", error={"message": message})
    assert job.settle() == ["b"]
    job.log.close()
    execution = job.state.cases["a"].execution
    assert execution.status == "error"
    assert execution.reason.endswith(f"; fault found, as planted: {inject}") == is_found
    assert (execution.status_text is FaultOutcome.FOUND) == is_found


def test_fault_without_a_case_belongs_to_the_unfinished_case(job):
    job.send_from_both("case_start", case="a")
    job.send_from_both("case_end", case="a")
    job.lose(1)
    assert job.settle() == ["c"]
    assert job.statuses == {"a": "passed", "b": "error", "c": "waiting"}


def test_rank_lost_after_the_last_case_is_an_error(job, messages):
    for name in ("a", "b", "c"):
        job.send_from_both("case_start", case=name)
        job.send_from_both("case_end", case=name)
    assert job.statuses["c"] == "passed"
    job.send(0, "bye")
    job.lose(1)
    assert job.settle() == []
    assert job.statuses == {"a": "passed", "b": "passed", "c": "error"}
    messages.check(job.state.cases["c"].execution.reason)
    assert job.state.cases["c"].execution.reason.endswith("ended without an error message")
    assert job.verdict == ("error", ExitCode.ERROR)


def test_orphaned_rank_is_an_error_with_its_message(job, messages):
    job.send_from_both("case_start", case="a")
    job.send(1, "log", level=LogLevel.ORPHANED, message="its parent process (mpispawn) has ended")
    (observation,) = job.watch.observations
    assert observation.orphaned
    assert observation.may_be_consequence
    assert job.watch.tentative
    assert job.settle() == ["b", "c"]
    assert job.statuses == {"a": "error", "b": "waiting", "c": "waiting"}
    reason = job.state.cases["a"].execution.reason
    messages.check(reason)
    assert reason.endswith(" into a: its parent process (mpispawn) has ended")


def test_ignores_a_connection_lost_after_bye(job):
    for name in ("a", "b", "c"):
        job.send_from_both("case_start", case=name)
        job.send_from_both("case_end", case=name)
    job.send_from_both("bye")
    job.lose(0)
    job.lose(1)
    assert job.watch.fault is None
    assert job.watch.done
    assert [source.answers[-1] for source in job.sources] == ["bye", "bye"]


def test_lost_relay_is_the_cause_and_not_its_ranks(job, messages):
    job.send_from_both("case_start", case="a")
    job.listener.on_relay_lost("node01", 2, "ended")
    job.lose(0)
    assert job.watch.fault.rank is None
    assert job.settle() == ["b", "c"]
    reason = job.state.cases["a"].execution.reason
    messages.check(reason)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"case": "z"}, "spoke of a case 'z' that it does not run"),
        ({"case": "a", "rank": 0}, "spoke as rank 0"),
    ],
)
def test_events_before_an_invalid_event_count(job, changes, reason):
    job.send_from_both("case_start", case="a")
    batch = [
        rank_event("case_end", 1, case="a"),
        {**rank_event("case_start", 1, case="b"), **changes},
        rank_event("case_end", 1, case="b"),
    ]
    job.listener.on_events(job.sources[1], [b"{}"] * 3, batch)
    job.send(0, "case_end", case="a")
    assert job.watch.fault.message == f"rank 1 on node01 {reason}"
    job.settle()
    assert job.statuses == {"a": "passed", "b": "error", "c": "waiting"}


def test_ending_a_case_that_was_not_started_is_a_fault(job):
    job.send(1, "case_end", case="a")
    assert job.watch.fault.message.endswith("after the launch, ended a, which it had not started")


@pytest.mark.parametrize(
    ("events", "reason"),
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
def test_reports_a_rank_that_breaks_the_order_of_events(tmp_path, events, reason):
    job = SimulatedJob(tmp_path, "a", ready=False)
    job.listener.on_events(StandInConnection(1), [b"{}"] * len(events), events)
    job.log.close()
    assert job.watch.fault.message == reason


def test_violation_numbers_the_rank_like_its_case(tmp_path):
    job = SimulatedJob(tmp_path, "a", first_rank=7)
    job.send(1, "case_start", case="b")
    job.log.close()
    assert job.watch.fault.message == "rank 8 on node01 spoke of a case 'b' that it does not run"


def test_case_start_before_ready_is_a_violation(tmp_path, messages):
    job = SimulatedJob(tmp_path, "a")
    late = StandInConnection(1)
    job.listener.on_events(late, [b"{}"], [rank_event("case_start", 1, case="a")])
    job.log.close()
    messages.check(job.watch.fault.message)
    assert job.statuses == {"a": "waiting"}


def test_defect_of_spbench_is_an_error_of_its_case_only(job, monkeypatch):
    job.send_from_both("case_start", case="a")
    job.send_from_both("case_end", case="a")
    job.send_from_both("case_start", case="b")
    monkeypatch.setattr(job.state, "apply", lambda event: {}["unexpected"])
    job.send(1, "samples", case="b")
    monkeypatch.undo()
    assert job.listener.failure is None
    assert job.settle() == ["c"]
    assert job.statuses == {"a": "passed", "b": "error", "c": "waiting"}
    execution = job.state.cases["b"].execution
    assert execution.reason.startswith("a defect of spbench at engine/recorder.py:")
    assert "KeyError" in execution.traceback
    assert job.verdict == ("error", ExitCode.ERROR)


@pytest.mark.parametrize("repeat", [-1, 1, 10**9])
def test_unknown_repeat_is_a_fault(job, repeat):
    job.send_from_both("case_start", case="a")
    job.send(1, "case_end", case="a", repeat=repeat)
    assert job.watch.fault.message == f"rank 1 on node01 spoke of repeat {repeat} of a"


def test_job_lost_before_any_case_fails_only_the_first_case(job):
    job.lose(1)
    assert job.settle() == ["b", "c"]
    assert job.statuses == {"a": "error", "b": "waiting", "c": "waiting"}
    assert job.remaining.deaths == 1


def test_job_lost_twice_before_any_case_is_not_started_again(job):
    job.job = replace(job.job, deaths=1)
    job.lose(1)
    assert job.settle() == []
    assert set(job.statuses.values()) == {"error"}
    assert job.state.cases["c"].execution.reason.endswith("it is not started a third time")


def test_started_case_resets_the_count_of_lost_jobs(job):
    job.job = replace(job.job, deaths=1)
    job.send_from_both("case_start", case="a")
    job.lose(1)
    assert job.settle() == ["b", "c"]
    assert job.remaining.deaths == 0


def test_missing_software_before_any_case_fails_all_cases(job):
    job.send(1, "log", level="error", message="ModuleNotFoundError: No module named 'torch'")
    assert job.settle() == []
    assert set(job.statuses.values()) == {"error"}
    assert job.verdict == ("error", ExitCode.MISSING)


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        (("passed", "passed"), (RunStatus.PASSED, ExitCode.PASSED)),
        (("passed", "failed"), (RunStatus.FAILED, ExitCode.FAILED)),
        (("passed", "cancelled"), (RunStatus.CANCELLED, ExitCode.INTERRUPTED)),
        (("passed", "skipped"), (RunStatus.CANCELLED, ExitCode.INTERRUPTED)),
    ],
)
def test_run_is_cancelled_only_if_a_case_has_not_ended(statuses, verdict):
    state = RunState()
    for event in (run_start(*map(describe_case, "ab")), job_start(*"ab")):
        state.apply(event)
    for name, status in zip("ab", statuses, strict=True):
        state.apply(case_judged(name, status))
    run = Run(SimpleNamespace(request=Request(Path(), home=Path(), environ={})), state, None)
    run._stop.code = ExitCode.INTERRUPTED
    assert run._judge() == verdict
