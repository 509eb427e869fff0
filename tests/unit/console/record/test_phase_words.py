"""The phase of a running case in words."""

from types import SimpleNamespace
from typing import Any

import pytest

from spbench.record.messages.phases import describe_phase, describe_start
from spbench.record.run_parts import JobState, RankState
from spbench.record.state import RunState
from spbench_core.events.rank_facts import RankFacts
from spbench_core.events.statuses import RankPhase


def rank(number, phase="check", done=0, total=0, since=100.0):
    """A rank in one of the phases, or with an activity of that name."""
    known = phase in set(RankPhase)
    return RankState(
        number,
        RankFacts("here"),
        phase=RankPhase(phase) if known else RankPhase.WORKING,
        activity="" if known else phase,
        done=done,
        total=total,
        phase_since=since,
    )


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([], ""),
        ([rank(0, "ready")], ""),
        ([rank(0, done=9, total=9)], ""),
        ([rank(0, total=9)], "check 0 %"),
        ([rank(0, done=3, total=9)], "check 33 %, 20 s left"),
        ([rank(0, "running", 1), rank(1, "running", 7)], "running, 7 lines, 10 s"),
        ([rank(0, "done"), rank(1, "waiting")], "waiting for another rank, 10 s"),
        # The last to begin gets on; the others wait in what they did before.
        ([rank(0, done=3, total=9), rank(1, "baseline", 1, 2, 105.0)], "baseline 50 %, 5 s left"),
    ],
)
def test_a_phase_is_told_with_what_is_left_of_it(ranks, words):
    state = SimpleNamespace(ranks={one.rank: one for one in ranks})
    assert describe_phase(state, 110.0) == words


# The start


class Begun:
    """A run of one job of four ranks, as its events have told so far."""

    def __init__(self):
        self.state: Any = RunState()

    def run(self):
        self.state.run = SimpleNamespace(started=100.0, finished=None)

    def job(self, np=4):
        told = dict.fromkeys(("version", "hostfile"), "") | {"argv": (), "env": {}, "cases": ()}
        self.state.jobs[1] = JobState(
            number=1, launcher="mpirun", np=np, started=102.0, oversubscribed=False, **told
        )

    def ranks(self, *phases):
        for number, phase in enumerate(phases):
            self.state.ranks[number] = rank(number, phase)
            self.state.ranks[number].last_heard = 107.0

    def words(self, now=110.0):
        return describe_start(self.state, now)


def test_one_rank_has_no_plural():
    begun = Begun()
    begun.run()
    begun.job(np=1)
    assert begun.words() == "mpirun launches 1 rank, 8 s"
    begun.ranks("ready")
    assert begun.words() == "the rank is ready, 8 s"


def test_each_phase_of_the_start_is_told_with_its_time():
    begun = Begun()
    assert begun.words() == "waiting for the run's first events"
    begun.run()
    assert begun.words() == "asking hosts what they have (ssh), 10 s"
    begun.job()
    assert begun.words() == "mpirun launches 4 ranks, 8 s"
    begun.ranks("starting", "starting")
    assert begun.words() == "MPI and torch start: 2 of 4 ranks are there, 8 s"
    begun.ranks("ready", "starting", "starting", "starting")
    assert begun.words() == "MPI and torch start: 1 of 4 ranks are ready, 8 s"
    begun.ranks("ready", "ready", "ready", "ready")
    assert begun.words() == "all 4 ranks are ready, 8 s"
    begun.ranks("setup", "setup", "setup", "setup")
    assert begun.words() == "set-up and warm-up, 3 s"
    begun.ranks("timing", "setup", "setup", "setup")
    assert begun.words() == ""


def test_between_jobs_and_at_the_end():
    begun = Begun()
    begun.run()
    begun.job()
    begun.state.jobs[1].finished = 109.0
    assert begun.words() == "job 1 has ended, the next begins: 1 s"
    assert begun.words(now=100.0).endswith("0 s"), "clocks of hosts may differ"
    begun.state.run.finished = 110.0
    assert begun.words() == ""
