"""Further launches of cases that repeat until their median is known well, or for some time."""

import pytest

from spbench.engine.recorder import Recorder
from spbench.engine.verdicts import plan_further_jobs
from spbench.launch.jobs import Job
from spbench.record.messages.cases import describe_repeats
from spbench.record.runs.event_log import EventLog
from spbench.suites.case import Case, RepeatPolicy
from spbench.suites.settings import LaunchSettings
from unit.events import described, job_end, job_start, rank_event, run_start, state_of

WIDE = 0.1
LONG = 1000.0


def case(name, repeat=1):
    until = RepeatPolicy(WIDE, LONG)
    settings = LaunchSettings()
    return Case(name, name, "halo.exchange", {}, 1, repeat, (), settings, 1, until=until)


def about(name="a", interval=WIDE, max_time=LONG, **changes):
    until = {"interval": interval, "max_time": max_time}
    return described(name, np=1, checks=[], until=until, **changes)


def launch(number, *cases, time=1.0, seconds=10.0, repeat=None):
    """A launch whose one rank runs these cases, each with one iteration of that time in ms."""
    repeat = number - 1 if repeat is None else repeat
    yield job_start(*cases, np=1, job=number)
    yield rank_event("ready", size=1)
    for name in cases:
        own = {"case": name, "repeat": repeat}
        yield rank_event("case_start", **own)
        yield rank_event("samples", **own, values=[time])
        yield rank_event("check", **own, passed=time < 50)
        yield rank_event("case_end", **own)
    yield job_end() | {"job": number, "time": 1000.0 + seconds}


@pytest.fixture
def after(tmp_path):
    """Which launches come after these, and how the repeats of the case a ended."""

    def look(events, cases=None, jobs=None):
        state = state_of([run_start(*(cases or [about()])), *events])
        recorder = Recorder(EventLog(tmp_path / f"{len(events)}.jsonl"), state, lambda event: None)
        jobs = jobs or [Job(1, (case("a"),), 1, LaunchSettings())]
        found = plan_further_jobs(jobs, recorder)
        launches = [([case.id for case in job.cases], job.repeat) for job in found]
        return launches, describe_repeats(state.cases["a"]), state.cases["a"].status

    return look


def launches(times, **more):
    return [
        event for at, time in enumerate(times, 1) for event in launch(at, "a", time=time, **more)
    ]


def test_fewer_than_six_launches_have_no_interval_and_one_more_comes(after):
    assert after(launches([1.0] * 5)) == ([(["a"], 5)], None, "running")


def test_a_narrow_interval_ends_the_repeats(after):
    told = "it ran 6 times: the 95 % interval of its median is 4.0 % wide, and 10 % was asked for"
    assert after(launches([1.0, 1.02, 0.99, 1.0, 1.03, 1.0])) == ([], told, "passed")


def test_a_wide_interval_does_not(after):
    assert after(launches([1.0, 1.2, 0.9, 1.0, 1.0, 1.0])) == ([(["a"], 6)], None, "running")


def test_the_time_ends_them_and_it_is_said_how_wide_the_interval_still_is(after):
    look = after(launches([1.0, 1.5, 0.5, 1.0, 1.0, 1.0], seconds=200.0))
    told = "it ran 6 times, for its max_time of 1000 s: the 95 % interval of its median is still"
    assert look == ([], f"{told} 100 % wide, and 10 % was asked for", "passed")
    few = after(launches([1.0], seconds=1001.0))
    told = "it ran 1 time, for its max_time of 1000 s: too few for a 95 % interval of its median"
    assert few == ([], f"{told}, which takes six", "passed")


def test_a_launch_that_cases_share_counts_in_equal_parts(after):
    jobs = [Job(1, (case("a"), case("b")), 1, LaunchSettings())]
    events = [*launch(1, "a", "b", seconds=1800.0)]
    found = after(events, [about("a"), about("b")], jobs)
    assert found == ([(["a", "b"], 1)], None, "running")


def test_a_failed_check_ends_them(after):
    told = "it ran 2 times, and no more since a check failed"
    assert after(launches([1.0, 99.0])) == ([], told, "failed")


def test_each_case_goes_on_from_its_own_repeat(after):
    jobs = [Job(1, (case("a"), case("b", repeat=2)), 1, LaunchSettings())]
    events = [*launch(1, "a", "b"), *launch(2, "b")]
    found = after(events, [about("a"), about("b", repeat=2)], jobs)
    assert found == ([(["a"], 1), (["b"], 2)], None, "running")


def test_a_case_without_until_is_none_of_them(after):
    events = [*launch(1, "a")]
    assert after(events, [described("a", np=1, checks=[])]) == ([], None, "running")
