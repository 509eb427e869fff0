import pytest

from spbench.record.live_stragglers import LiveStragglers
from spbench.record.messages.stragglers import describe_lags, find_lags
from spbench.record.rank_rows import RankRows
from spbench.record.state import RunState
from spbench.record.stragglers import Straggler, find_stragglers
from unit.events import TIME, described, job_start, metric, rank_event, started

FOUR = ("node01", "node01", "node02", "node02")


class Running:
    """A run of some ranks whose times come second by second."""

    def __init__(self, hosts=FOUR, cases=(), **changes):
        self.state = RunState()
        self.rows = RankRows(self.state)
        self.stragglers = LiveStragglers(self.rows, self.state)
        self.now = 1000.0
        self.offsets = {}
        self.take(*started(*(cases or [described(np=len(hosts), **changes)]), hosts=hosts))

    def take(self, *events):
        for event in events:
            self.state.apply(event)
            self.rows.update(event)

    def go_on(self, seconds, *times, samples=5, case="a", waits=()):
        """Let each rank give samples a second that take so long; None gives none.

        ``waits`` are the parts of these times in which ranks wait for others.
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
    def said(self):
        return self.stragglers.messages()

    @property
    def named(self):
        """Name, ratio and seconds of each straggler."""
        return [(slow.name, slow.ratio, slow.seconds) for slow in self.stragglers.find()]


def test_a_slow_rank_is_named_with_how_much_and_how_long():
    run = Running()
    run.go_on(41, 10, 10, 10, 18)
    assert run.said == [
        "rank 3 on node02 is 1.80x as slow as the median rank in a for 40 s; "
        "check its host with: spbench doctor --hosts node02"
    ]
    assert run.stragglers.find() == [Straggler(3, "node02", 1.8, 40.0, since=1001.0)]


def test_ranks_that_are_alike_are_not_named():
    run = Running()
    run.go_on(10, 10, 10.5, 9.8, 12.9)
    assert run.said == []


def test_the_worst_comes_first():
    run = Running(hosts=("node01",) * 6)
    run.go_on(5, 10, 14, 10, 30, 10, 10)
    assert [sentence[:6] for sentence in run.said] == ["rank 3", "rank 1"]


def test_it_speaks_after_two_seconds_and_as_many_samples_as_a_judged_case_needs():
    run = Running()
    run.go_on(2, 10, 10, 10, 20)
    assert run.said == []
    run.go_on(1, 10, 10, 10, 20)
    assert run.named == [("rank 3 on node02", 2.0, 2.0)]
    few = Running()
    few.go_on(7, 10, 10, 10, 20, samples=1)
    assert few.said == []
    assert find_stragglers(few.rows.case) == []
    few.go_on(1, 10, 10, 10, 20, samples=1)
    assert few.said == describe_lags(find_lags(few.rows.case, few.stragglers.find()))
    [judged] = find_stragglers(few.rows.case)
    assert (judged.name, judged.ratio) == ("rank 3 on node02", 2.0)


def test_a_rank_that_catches_up_is_named_no_more_and_begins_anew():
    run = Running()
    run.go_on(10, 10, 10, 10, 20)
    run.go_on(11, 10, 10, 10, 10)
    assert run.said == []
    run.go_on(30, 10, 10, 10, 20)
    [(_, _, seconds)] = run.named
    assert seconds < 30


def test_a_rank_that_gives_no_more_times_lags_no_longer_than_it_did():
    run = Running()
    run.go_on(5, 10, 10, 10, 20)
    run.go_on(60, 10, 10, 10, None)
    assert run.named == [("rank 3 on node02", 2.0, 4.0)]


def test_a_host_whose_clock_is_wrong_does_not_matter():
    run = Running()
    run.offsets = {2: -3600.0, 3: -3600.0}
    run.go_on(11, 10, 10, 10, 20)
    assert run.named == [("rank 3 on node02", 2.0, 10.0)]


def test_a_long_lag_is_in_minutes_and_has_its_beginning():
    run = Running()
    run.go_on(301, 10, 10, 10, 20, samples=1)
    assert " for 5 min 00 s since 00:16:41 UTC; " in run.said[0]


def test_a_host_that_is_slow_as_a_whole_is_named_once():
    run = Running(hosts=("node01", "node01", "node01", "node02", "node02", "node03"))
    run.go_on(3, 10, 10, 10, 20, 10, 30)
    assert run.named == [
        ("rank 5 on node03", 3.0, 2.0),
        ("rank 3 on node02", 2.0, 2.0),
    ]
    run.go_on(6, 10, 10, 10, 20, 16, 30)
    assert run.named == [
        ("rank 5 on node03", 3.0, 8.0),
        ("host node02", 1.6, 3.0),
    ]


@pytest.mark.parametrize(
    ("measures", "doubt"),
    [("job", " (unless it waits for a slower rank, which is not measured)"), ("rank", "")],
)
def test_ranks_are_named_in_any_case_that_times_them(measures, doubt):
    run = Running(measures=measures)
    run.go_on(5, 10, 10, 10, 20)
    assert f" for 4.0 s{doubt}; check " in run.said[0]


WAITED = metric("waited_ms", "ms", "none", part_of="time_ms", waits=True)


def test_the_cause_is_named_and_not_the_ranks_that_wait_for_it():
    run = Running(measures="job", metrics=[TIME, WAITED])
    run.go_on(5, 10, 10, 200, 200, waits=(2, 2, 192, 2))
    assert " for 4.0 s (rank 2 waits for it); check " in run.said[0]
    assert run.named == [("rank 3 on node02", 20.0, 4.0)]
    assert [run.rows.row(rank).skew for rank in range(4)] == [1.0, 1.0, 1.0, 20.0]
    assert run.rows.slowest(1)[0].rank == 3


def test_stages_of_a_pipeline_are_not_compared():
    places = [{"stage": rank // 2} for rank in range(4)]
    run = Running(measures="job", places=places)
    run.go_on(5, 10, 10, 20, 20)
    assert run.said == []
    assert [run.rows.row(rank).skew for rank in range(4)] == [1.0] * 4
    run.go_on(50, 10, 10, 20, 40)
    [(name, ratio, _)] = run.named
    assert (name, ratio) == ("rank 3 on node02", 2.0)


def test_ranks_of_a_link_benchmark_are_not_compared():
    run = Running(measures="link")
    run.go_on(5, 10, 10, 10, 20)
    assert run.said == []


def test_the_next_case_begins_anew():
    run = Running(cases=(described("a", 4), described("b", 4)))
    run.go_on(10, 10, 10, 10, 20)
    run.take(*(rank_event("case_start", rank, case="b") for rank in range(4)))
    assert run.said == []
    run.go_on(4, 10, 10, 10, 20, case="b")
    assert run.named == [("rank 3 on node02", 2.0, 3.0)]


def test_the_next_job_begins_anew():
    run = Running(cases=(described("a", 4), described("b", 4)))
    run.go_on(10, 10, 10, 10, 20)
    run.take(job_start("b", np=4, job=2))
    assert run.said == []


def test_one_rank_is_compared_with_none():
    run = Running(hosts=("node01",))
    run.go_on(5, 10)
    assert run.said == []
