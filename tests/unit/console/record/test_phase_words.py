"""Descriptions of the phase of a running case and of the start of a run."""

from types import SimpleNamespace
from typing import Any

import pytest

from spbench.record.messages.phases import describe_phase, describe_start
from spbench.record.run_parts import JobState, RankState
from spbench.record.state import RunState
from spbench_core.events.rank_events import RankFacts
from spbench_core.events.statuses import JobStatus, RankPhase


def make_rank(number, phase="check", done=0, total=0, since=100.0):
    """Return a rank in a phase, or with an activity of that name."""
    is_phase = phase in set(RankPhase)
    return RankState(
        number,
        RankFacts("here"),
        phase=RankPhase(phase) if is_phase else RankPhase.WORKING,
        activity="" if is_phase else phase,
        done=done,
        total=total,
        phase_since=since,
    )


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([], ""),
        ([make_rank(0, "ready")], ""),
        ([make_rank(0, done=9, total=9)], ""),
        ([make_rank(0, total=9)], "check 0 %"),
        ([make_rank(0, done=3, total=9)], "check 33 %, phase ends in 20 s"),
        ([make_rank(0, done=99, total=100)], "check 99 %"),
        ([make_rank(0, "running", 1), make_rank(1, "running", 7)], "running, 7 lines, 10 s"),
        ([make_rank(0, "done"), make_rank(1, "waiting")], "waiting for another rank, 10 s"),
        # The last rank to start a phase makes progress; the others wait in an earlier phase.
        (
            [make_rank(0, done=3, total=9), make_rank(1, "baseline", 1, 2, 105.0)],
            "baseline 50 %, phase ends in 5 s",
        ),
    ],
)
def test_describes_phase_with_its_remaining_time(ranks, expected):
    assert describe_phase(make_state(ranks), 110.0) == expected


def make_state(ranks):
    state = RunState()
    state.ranks = {rank.rank: rank for rank in ranks}
    return state


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.2, "4 s"), (95, "1 min 35 s"), (5400, "1 h 30 min")]
)
def test_long_phases_end_in_minutes_and_hours(seconds, text):
    rank = make_rank(0, done=1, total=2, since=100.0)
    phase = describe_phase(make_state([rank]), 100.0 + seconds)
    assert phase == f"check 50 %, phase ends in {text}"


@pytest.mark.parametrize("phase", ["lost", "unfinished", "error", "ended"])
def test_rank_that_is_over_has_no_phase(phase):
    assert describe_phase(make_state([make_rank(0, phase, done=1, total=9)]), 110.0) == ""


def test_run_that_has_ended_has_no_phase():
    state: Any = make_state([make_rank(0, done=1, total=9)])
    state.run = SimpleNamespace(started=100.0, finished=120.0)
    assert describe_phase(state, 120.0) == ""


# The start


class StartingRun:
    """The state of a run of one job of four ranks, in the order of its start."""

    def __init__(self):
        self.state: Any = RunState()

    def start_run(self):
        self.state.run = SimpleNamespace(started=100.0, finished=None)

    def start_job(self, np=4, number=1, first_rank=0):
        fields = dict.fromkeys(("version", "hostfile"), "") | {"argv": (), "env": {}, "cases": ()}
        self.state.jobs[number] = JobState(
            number=number,
            launcher="mpirun",
            np=np,
            started=102.0,
            oversubscribed=False,
            first_rank=first_rank,
            **fields,
        )

    def end_job(self, number=1):
        self.state.jobs[number].status = JobStatus.ENDED
        self.state.jobs[number].finished = 109.0

    def set_phases(self, *phases):
        for number, phase in enumerate(phases):
            self.state.ranks[number] = make_rank(number, phase)
            self.state.ranks[number].phase_since = 107.0
            self.state.ranks[number].last_heard = 109.5

    def describe(self, now=110.0):
        return describe_start(self.state, now)


def test_single_rank_is_described_in_the_singular(messages):
    run = StartingRun()
    run.start_run()
    run.start_job(np=1)
    messages.check(run.describe())
    run.set_phases("ready")
    messages.check(run.describe())


def test_describes_each_phase_of_the_start_with_its_time(messages):
    run = StartingRun()
    messages.check(run.describe())
    run.start_run()
    messages.check(run.describe())
    run.start_job()
    messages.check(run.describe())
    run.set_phases("starting", "starting")
    messages.check(run.describe())
    run.set_phases("ready", "starting", "starting", "starting")
    messages.check(run.describe())
    run.set_phases("ready", "ready", "ready", "ready")
    messages.check(run.describe())
    run.set_phases("setup", "setup", "setup", "setup")
    messages.check(run.describe())
    run.set_phases("timing", "setup", "setup", "setup")
    assert run.describe() == ""


def test_describes_time_between_jobs_but_nothing_at_the_end(messages):
    run = StartingRun()
    run.start_run()
    run.start_job()
    run.end_job()
    messages.check(run.describe())
    assert run.describe(now=100.0).endswith("0 s"), "clocks of hosts may differ"
    run.state.run.finished = 110.0
    assert run.describe() == ""


def test_describes_a_job_that_runs_while_a_newer_one_has_ended(messages):
    run = StartingRun()
    run.start_run()
    run.start_job(number=1)
    run.start_job(number=2, first_rank=4)
    run.set_phases("ready", "ready", "ready", "ready", "done", "done", "done", "done")
    run.end_job(2)
    messages.check(run.describe())
    run.set_phases("timing")
    assert run.describe() == ""
