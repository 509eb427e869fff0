"""Further launches of cases that repeat until an interval or a time is reached."""

import pytest

from spbench.engine.job_sequence import plan_further_jobs
from spbench.engine.recorder import Recorder
from spbench.launch.jobs import Job
from spbench.record.messages.cases import describe_repeats
from spbench.record.runs.event_log import EventLog
from spbench.suites.case import Case, RepeatPolicy
from spbench.suites.settings import LaunchSettings
from support.sample_events import (
    build_state,
    describe_case,
    job_end,
    job_start,
    rank_event,
    run_start,
)

WIDE = 0.1
LONG = 1000.0


def build_case(name, repeat=1):
    until = RepeatPolicy(WIDE, LONG)
    settings = LaunchSettings()
    return Case(name, name, "halo.exchange", {}, 1, repeat, (), settings, 1, until=until)


def described_case(name="a", interval=WIDE, max_time=LONG, **changes):
    until = {"interval": interval, "max_time": max_time}
    return describe_case(name, np=1, checks=[], until=until, **changes)


def launch_events(number, *cases, time=1.0, seconds=10.0, repeat=None):
    """Yield events of a launch of one rank: one iteration of ``time`` ms per case."""
    repeat = number - 1 if repeat is None else repeat
    yield job_start(*cases, np=1, job=number)
    yield rank_event("ready", size=1)
    for name in cases:
        fields = {"case": name, "repeat": repeat}
        yield rank_event("case_start", **fields)
        yield rank_event("samples", **fields, values=[time])
        yield rank_event("check", **fields, passed=time < 50)
        yield rank_event("case_end", **fields)
    yield job_end() | {"job": number, "time": 1000.0 + seconds}


@pytest.fixture
def plan_after(tmp_path):
    """Return a function that plans further launches and describes repeats of case a."""

    def plan(events, cases=None, jobs=None):
        state = build_state([run_start(*(cases or [described_case()])), *events])
        recorder = Recorder(EventLog(tmp_path / f"{len(events)}.jsonl"), state, lambda event: None)
        jobs = jobs or [Job(1, (build_case("a"),), 1, LaunchSettings())]
        further_jobs = plan_further_jobs(jobs, recorder)
        launches = [([case.id for case in job.cases], job.repeat) for job in further_jobs]
        return launches, describe_repeats(state.cases["a"]), state.cases["a"].status

    return plan


def repeated_launches(times, **options):
    return [
        event
        for number, time in enumerate(times, 1)
        for event in launch_events(number, "a", time=time, **options)
    ]


def test_fewer_than_six_launches_get_one_more(plan_after):
    assert plan_after(repeated_launches([1.0] * 5)) == ([(["a"], 5)], None, "running")


def test_narrow_interval_ends_the_repeats(plan_after):
    message = (
        "it ran 6 times: the 95 % interval of its median is 4.0 % wide, and 10 % was asked for"
    )
    assert plan_after(repeated_launches([1.0, 1.02, 0.99, 1.0, 1.03, 1.0])) == (
        [],
        message,
        "passed",
    )


def test_wide_interval_continues_the_repeats(plan_after):
    assert plan_after(repeated_launches([1.0, 1.2, 0.9, 1.0, 1.0, 1.0])) == (
        [(["a"], 6)],
        None,
        "running",
    )


def test_maximum_time_ends_the_repeats_with_the_interval(plan_after):
    outcome = plan_after(repeated_launches([1.0, 1.5, 0.5, 1.0, 1.0, 1.0], seconds=200.0))
    message = "it ran 6 times, for its max_time of 1000 s: the 95 % interval of its median is still"
    assert outcome == ([], f"{message} 100 % wide, and 10 % was asked for", "passed")
    few = plan_after(repeated_launches([1.0], seconds=1001.0))
    message = "it ran 1 time, for its max_time of 1000 s: too few for a 95 % interval of its median"
    assert few == ([], f"{message}, which takes six", "passed")


def test_time_of_a_shared_launch_counts_in_equal_parts(plan_after):
    jobs = [Job(1, (build_case("a"), build_case("b")), 1, LaunchSettings())]
    events = [*launch_events(1, "a", "b", seconds=1800.0)]
    outcome = plan_after(events, [described_case("a"), described_case("b")], jobs)
    assert outcome == ([(["a", "b"], 1)], None, "running")


def test_failed_check_ends_the_repeats(plan_after):
    message = "it ran 2 times, and no more since a check failed"
    assert plan_after(repeated_launches([1.0, 99.0])) == ([], message, "failed")


def test_each_case_continues_from_its_last_repeat(plan_after):
    jobs = [Job(1, (build_case("a"), build_case("b", repeat=2)), 1, LaunchSettings())]
    events = [*launch_events(1, "a", "b"), *launch_events(2, "b")]
    outcome = plan_after(events, [described_case("a"), described_case("b", repeat=2)], jobs)
    assert outcome == ([(["a"], 1), (["b"], 2)], None, "running")


def test_case_without_until_gets_no_further_launch(plan_after):
    events = [*launch_events(1, "a")]
    assert plan_after(events, [describe_case("a", np=1, checks=[])]) == ([], None, "running")
