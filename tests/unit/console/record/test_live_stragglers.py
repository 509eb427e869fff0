"""Stragglers of a case while it runs."""

import pytest

from spbench.record.live_stragglers import LiveStragglers
from spbench.record.messages.stragglers import describe_lags, find_lags
from spbench.record.rank_rows import RankRows
from spbench.record.state import RunState
from spbench.record.stragglers import Straggler, find_stragglers
from support.sample_events import (
    TIME,
    describe_case,
    describe_metric,
    job_start,
    make_started_run,
    rank_event,
)

FOUR_HOSTS = ("node01", "node01", "node02", "node02")


class RunningCases:
    """A simulated run with ranks that report their times every second."""

    def __init__(self, hosts=FOUR_HOSTS, cases=(), **changes):
        self.state = RunState()
        self.rows = RankRows(self.state)
        self.stragglers = LiveStragglers(self.rows, self.state)
        self.now = 1000.0
        self.offsets = {}
        self.take(
            *make_started_run(*(cases or [describe_case(np=len(hosts), **changes)]), hosts=hosts)
        )

    def take(self, *events):
        for event in events:
            self.state.apply(event)
            self.rows.update(event)

    def report_times(self, seconds, *times, samples=5, case="a", waits=()):
        """Let each rank report samples of its time in ms every second; None reports none.

        ``waits`` are the parts of these times, in ms, that ranks wait for others.
        """
        for _ in range(seconds):
            self.now += 1.0
            for rank, time in enumerate(times):
                if time is not None:
                    event = rank_event("samples", rank, case=case, values=[time] * samples)
                    self.take(event | {"time": self.now + self.offsets.get(rank, 0.0)})
            for rank, wait in enumerate(waits):
                fields = {"case": case, "metric": "waited_ms", "values": [wait] * samples}
                self.take(rank_event("samples", rank, **fields) | {"time": self.now})
            self.stragglers.update()

    @property
    def messages(self):
        return self.stragglers.messages()

    @property
    def summaries(self):
        """Names, ratios and seconds of the stragglers."""
        return [(slow.name, slow.ratio, slow.seconds) for slow in self.stragglers.find()]


def test_reports_slow_rank_with_ratio_and_duration(messages):
    run = RunningCases()
    run.report_times(41, 10, 10, 10, 18)
    messages.check(run.messages)
    assert run.stragglers.find() == [Straggler(3, "node02", 1.8, 40.0, since=1001.0)]


def test_similar_ranks_are_not_reported():
    run = RunningCases()
    run.report_times(10, 10, 10.5, 9.8, 12.9)
    assert run.messages == []


def test_reports_the_slowest_rank_first():
    run = RunningCases(hosts=("node01",) * 6)
    run.report_times(5, 10, 14, 10, 30, 10, 10)
    assert [message[:6] for message in run.messages] == ["rank 3", "rank 1"]


def test_reports_after_2_s_with_as_many_samples_as_a_verdict():
    run = RunningCases()
    run.report_times(2, 10, 10, 10, 20)
    assert run.messages == []
    run.report_times(1, 10, 10, 10, 20)
    assert run.summaries == [("rank 3 on node02", 2.0, 2.0)]
    slow_run = RunningCases()
    slow_run.report_times(7, 10, 10, 10, 20, samples=1)
    assert slow_run.messages == []
    assert find_stragglers(slow_run.rows.case) == []
    slow_run.report_times(1, 10, 10, 10, 20, samples=1)
    assert slow_run.messages == describe_lags(
        find_lags(slow_run.rows.case, slow_run.stragglers.find())
    )
    [judged] = find_stragglers(slow_run.rows.case)
    assert (judged.name, judged.ratio) == ("rank 3 on node02", 2.0)


def test_rank_that_catches_up_starts_a_new_lag():
    run = RunningCases()
    run.report_times(10, 10, 10, 10, 20)
    run.report_times(11, 10, 10, 10, 10)
    assert run.messages == []
    run.report_times(30, 10, 10, 10, 20)
    [(_, _, seconds)] = run.summaries
    assert seconds < 30


def test_lag_of_the_next_launch_starts_with_its_first_samples():
    run = RunningCases(repeat=2)
    run.report_times(10, 10, 10, 10, 18)
    run.take(job_start("a", np=4, job=2))
    run.take(*(rank_event("ready", rank, size=4, job=2) for rank in range(4)))
    run.take(*(rank_event("case_start", rank, case="a", job=2) for rank in range(4)))
    run.stragglers.update()
    assert run.stragglers.find() == []
    run.report_times(4, 10, 10, 10, 18)
    assert run.stragglers.find()[0].since > 1000


def test_lag_ends_with_the_last_samples_of_its_rank():
    run = RunningCases()
    run.report_times(5, 10, 10, 10, 20)
    run.report_times(60, 10, 10, 10, None)
    assert run.summaries == [("rank 3 on node02", 2.0, 4.0)]


def test_wrong_clock_of_a_host_does_not_change_the_lag():
    run = RunningCases()
    run.offsets = {2: -3600.0, 3: -3600.0}
    run.report_times(11, 10, 10, 10, 20)
    assert run.summaries == [("rank 3 on node02", 2.0, 10.0)]


def test_long_lag_is_in_minutes_with_its_start(messages):
    run = RunningCases()
    run.report_times(301, 10, 10, 10, 20, samples=1)
    messages.check(run.messages[0])


def test_reports_slow_host_instead_of_its_ranks():
    run = RunningCases(hosts=("node01", "node01", "node01", "node02", "node02", "node03"))
    run.report_times(3, 10, 10, 10, 20, 10, 30)
    assert run.summaries == [
        ("rank 5 on node03", 3.0, 2.0),
        ("rank 3 on node02", 2.0, 2.0),
    ]
    run.report_times(6, 10, 10, 10, 20, 16, 30)
    assert run.summaries == [
        ("rank 5 on node03", 3.0, 8.0),
        ("host node02", 1.6, 3.0),
    ]


@pytest.mark.parametrize(
    ("measures", "doubt"),
    [("job", " (unless it waits for a slower rank, which is not measured)"), ("rank", "")],
)
def test_reports_slow_ranks_of_any_timed_case(measures, doubt):
    run = RunningCases(measures=measures)
    run.report_times(5, 10, 10, 10, 20)
    assert f" for 4.0 s so far{doubt}; check " in run.messages[0]


WAITED = describe_metric("waited_ms", "ms", "none", part_of="time_ms", waits=True)


def test_reports_the_cause_and_not_the_waiting_ranks(messages):
    run = RunningCases(measures="job", metrics=[TIME, WAITED])
    run.report_times(5, 10, 10, 200, 200, waits=(2, 2, 192, 2))
    messages.check(run.messages[0])
    assert run.summaries == [("rank 3 on node02", 20.0, 4.0)]
    assert [run.rows.row(rank).skew for rank in range(4)] == [1.0, 1.0, 1.0, 20.0]
    assert run.rows.slowest(1)[0].rank == 3


def test_does_not_compare_stages_of_a_pipeline():
    coordinates = [{"stage": rank // 2} for rank in range(4)]
    run = RunningCases(measures="job", places=coordinates)
    run.report_times(5, 10, 10, 20, 20)
    assert run.messages == []
    assert [run.rows.row(rank).skew for rank in range(4)] == [1.0] * 4
    run.report_times(50, 10, 10, 20, 40)
    [(name, ratio, _)] = run.summaries
    assert (name, ratio) == ("rank 3 on node02", 2.0)


def test_does_not_compare_ranks_of_a_link_benchmark():
    run = RunningCases(measures="link")
    run.report_times(5, 10, 10, 10, 20)
    assert run.messages == []


def test_next_case_starts_without_stragglers():
    run = RunningCases(cases=(describe_case("a", 4), describe_case("b", 4)))
    run.report_times(10, 10, 10, 10, 20)
    run.take(*(rank_event("case_start", rank, case="b") for rank in range(4)))
    assert run.messages == []
    run.report_times(4, 10, 10, 10, 20, case="b")
    assert run.summaries == [("rank 3 on node02", 2.0, 3.0)]


def test_next_job_starts_without_stragglers():
    run = RunningCases(cases=(describe_case("a", 4), describe_case("b", 4)))
    run.report_times(10, 10, 10, 10, 20)
    run.take(job_start("b", np=4, job=2))
    assert run.messages == []


def test_single_rank_is_not_reported():
    run = RunningCases(hosts=("node01",))
    run.report_times(5, 10)
    assert run.messages == []
