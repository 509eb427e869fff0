"""Rows of the table of ranks, updated by events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.record.rank_rows import RankRow, RankRows
from spbench.record.state import RunState
from spbench.stats.summary import lower_median, summarize_repeats
from spbench_core.events.statuses import RankPhase
from support.sample_events import (
    TIME,
    describe_case,
    describe_metric,
    job_start,
    make_started_run,
    rank_event,
    run_start,
)


class WatchedRows:
    """A state and its rows that take the same events."""

    def __init__(self, *events):
        self.state = RunState()
        self.rows = RankRows(self.state)
        self.take(*events)

    def take(self, *events):
        for event in events:
            self.state.apply(event)
            self.rows.update(event)

    def row(self, rank=0):
        return self.rows.row(rank)

    def all_rows(self):
        """Return the rows, and check that rows built from the state are equal."""
        rows = self.rows.rows()
        assert rows == RankRows(self.state).rows()
        return rows


def time_samples(rank, *values, **fields):
    return rank_event("samples", rank, values=list(values), **fields)


def test_row_shows_a_rank_in_its_case():
    case = describe_case(
        metrics=[TIME, describe_metric("bandwidth", "GB/s", "higher", "min")],
        places=[{"tile": "0,0"}, {"tile": "0,1", "member": 1}],
    )
    watched = WatchedRows(
        *make_started_run(case, hosts=("node01", "node02")),
        time_samples(0, 1.0, 3.0, 2.0),
        time_samples(1, 4.0, 8.0),
        rank_event("progress", 1, done=2, total=4),
        rank_event("check", 1),
        rank_event("metric", 1, value=12.5),
    )
    assert watched.row(1) == RankRow(
        rank=1,
        host="node02",
        coordinates={"tile": "0,1", "member": "1"},
        phase=RankPhase.WORKING,
        activity="timing 2/4",
        iterations=2,
        last=8.0,
        p50=6.0,
        p95=pytest.approx(7.8),
        p99=pytest.approx(7.96),
        skew=3.0,
        gb_s=12.5,
        check="passed",
        recent=(4.0, 8.0),
    )
    assert watched.row(0).skew == 1.0
    assert watched.rows.medians() == {0: 2.0, 1: 6.0}
    assert watched.rows.typical() == 2.0
    assert watched.rows.iterations(0) == 3


def test_rank_without_times_has_no_figures():
    watched = WatchedRows(*make_started_run()[:-1])
    assert watched.row(0).phase == "setup"
    last = watched.row(1)
    assert last == RankRow(1, "node01", {}, RankPhase.READY, "ready", 0, *(None,) * 7)
    assert (watched.rows.medians(), watched.rows.typical()) == ({}, None)


def test_single_rank_has_no_skew():
    watched = WatchedRows(*make_started_run(hosts=["node01"]), time_samples(0, 1.0))
    assert (watched.row().p50, watched.row().skew, watched.rows.typical()) == (1.0, None, None)


def test_ranks_with_zero_times_have_no_skew():
    watched = WatchedRows(*make_started_run(), time_samples(0, 0.0), time_samples(1, 0.0))
    assert [row.skew for row in watched.all_rows()] == [None, None]


def test_ranks_are_sorted_in_any_order_of_events():
    events = make_started_run(hosts=["node01"] * 12)
    watched = WatchedRows(events[0], events[1], *reversed(events[2:14]))
    assert list(watched.rows.ranks()) == list(range(12))
    assert [row.rank for row in watched.rows.rows()] == list(range(12))


batches = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 1),
        st.lists(st.floats(1e-3, 1e6) | st.integers(1, 4).map(float), min_size=1, max_size=5),
        st.booleans(),
    ),
    max_size=25,
)


@given(batches)
def test_figures_cover_all_times_at_any_moment(batches):
    watched = WatchedRows(*make_started_run(describe_case(np=4, repeat=2), hosts=["node01"] * 4))
    values_by_rank = {rank: {} for rank in range(4)}
    for rank, repeat, values, is_read in batches:
        watched.take(time_samples(rank, *values, repeat=repeat))
        values_by_rank[rank].setdefault(repeat, []).extend(values)
        if is_read:
            watched.all_rows()
    repeats_by_rank = {rank: [*repeats.values()] for rank, repeats in values_by_rank.items()}
    summaries = {
        rank: summarize_repeats(repeats)
        for rank, repeats in repeats_by_rank.items()
        if any(repeats)
    }
    medians = [summary.p50 for summary in summaries.values()]
    typical = lower_median(medians) if len(medians) > 1 else None
    assert watched.rows.typical() == typical
    for row in watched.all_rows():
        summary = summaries.get(row.rank)
        figures = (row.iterations, row.p50, row.p95, row.p99)
        if summary is None:
            assert figures == (0, None, None, None)
        else:
            assert figures == (summary.n, summary.p50, summary.p95, summary.p99)
        assert row.skew == (summary.p50 / typical if summary and typical else None)


def test_new_rows_include_earlier_times():
    state = RunState()
    for event in [*make_started_run(), time_samples(0, 1.0, 2.0), time_samples(1, 4.0)]:
        state.apply(event)
    rows = RankRows(state)
    assert [row.p50 for row in rows.rows()] == [1.5, 4.0]
    assert rows.row(1).skew == pytest.approx(4 / 1.5)
    assert rows.case is state.cases["a"]


# Versions


def test_row_is_kept_until_it_changes():
    watched = WatchedRows(*make_started_run(), time_samples(0, 1.0), time_samples(1, 2.0))
    row = watched.row(1)
    version = watched.rows.version(1)
    watched.take(rank_event("heartbeat", 1), rank_event("progress", 0))
    assert watched.row(1) is row
    assert watched.rows.version(1) == version


@pytest.mark.parametrize(
    "event",
    [
        time_samples(1, 3.0),
        rank_event("progress", 1),
        rank_event("check", 1, passed=False),
        rank_event("case_end", 1),
        time_samples(0, 0.5),  # changes the median of the typical rank, and with it the skew
    ],
)
def test_version_of_a_row_grows_when_it_changes(event):
    watched = WatchedRows(*make_started_run(), time_samples(0, 1.0), time_samples(1, 2.0))
    row = watched.row(1)
    version = watched.rows.version(1)
    watched.take(event)
    assert watched.rows.version(1) > version
    assert watched.row(1) != row


def test_versions_grow_across_jobs():
    watched = WatchedRows(*make_started_run(), time_samples(0, 1.0))
    version = watched.rows.version(0)
    watched.take(*make_started_run()[1:])
    assert watched.rows.version(0) > version


# Cases and jobs


def two_cases():
    return describe_case("a"), describe_case("b")


def test_next_case_resets_the_row_of_a_rank():
    watched = WatchedRows(
        *make_started_run(*two_cases()),
        time_samples(0, 1.0),
        time_samples(1, 2.0),
        rank_event("check", 0),
    )
    assert watched.row(0).check == "passed"
    before = watched.row(1)
    watched.take(rank_event("case_start", 0, case="b"))
    first = watched.row(0)
    assert (first.iterations, first.p50, first.last, first.check) == (0, None, None, None)
    # Rank 1 is still in the first case: it keeps its figures but has no skew.
    assert watched.row(1) != before
    assert (watched.row(1).p50, watched.row(1).skew) == (2.0, None)
    watched.take(rank_event("case_start", 1, case="b"))
    watched.take(time_samples(0, 5.0, case="b"), time_samples(1, 10.0, case="b"))
    assert [(row.p50, row.skew) for row in watched.all_rows()] == [(5.0, 1.0), (10.0, 2.0)]
    assert watched.rows.case is watched.state.cases["b"]


def test_late_rank_does_not_restore_the_previous_case():
    watched = WatchedRows(*make_started_run(*two_cases())[:-1])
    watched.take(rank_event("case_start", 0, case="b"), time_samples(0, 5.0, case="b"))
    watched.take(rank_event("case_start", 1, case="a"))
    assert watched.rows.case is watched.state.cases["b"]
    assert watched.rows.medians() == {0: 5.0}


def test_median_of_a_rank_covers_its_repeats():
    watched = WatchedRows(
        *make_started_run(describe_case(repeat=2)), time_samples(0, 1.0), rank_event("check", 0)
    )
    watched.take(rank_event("case_start", 0, repeat=1), time_samples(0, 3.0, 5.0, repeat=1))
    row = watched.row(0)
    assert (row.iterations, row.p50, row.last, row.check) == (3, 2.5, 5.0, "passed")


def test_new_job_has_new_rows():
    watched = WatchedRows(
        run_start(*two_cases()), *make_started_run(*two_cases())[1:], time_samples(0, 1.0)
    )
    assert len(watched.rows.rows()) == 2
    watched.take(job_start("b", job=2))
    assert (watched.rows.rows(), watched.rows.medians(), watched.rows.case) == ([], {}, None)
    watched.take(rank_event("ready", 1), rank_event("case_start", 1, case="b"))
    assert [row.rank for row in watched.all_rows()] == [1]


def test_rank_lost_before_it_was_ready_has_no_row():
    lost = {"event": "rank_lost", "time": 1.0, "rank": 1, "host": "node01", "reason": "dead"}
    watched = WatchedRows(run_start(), job_start(), lost)
    assert watched.rows.rows() == []


# Checks and rates


@pytest.mark.parametrize(
    ("results", "expected"),
    [([], None), ([True], "passed"), ([True, False], "failed"), ([False, True], "failed")],
)
def test_combines_the_checks_of_a_rank(results, expected):
    checks = [rank_event("check", 0, name=f"c{n}", passed=ok) for n, ok in enumerate(results)]
    assert WatchedRows(*make_started_run(), *checks).row(0).check == expected
    assert WatchedRows(*make_started_run(), *checks).row(1).check is None


RATES = [
    TIME,
    describe_metric("rate", "1"),
    describe_metric("up", "GB/s"),
    describe_metric("down", "GB/s"),
]


def test_rate_is_the_latest_value_of_the_first_gb_s_metric():
    watched = WatchedRows(*make_started_run(describe_case(metrics=RATES, repeat=2)))
    assert watched.row().gb_s is None
    watched.take(rank_event("metric", 0, name="rate", value=1.0))
    watched.take(rank_event("metric", 0, name="down", value=2.0))
    assert watched.row().gb_s is None
    watched.take(rank_event("metric", 0, name="up", value=3.0))
    assert watched.row().gb_s == 3.0
    watched.take(rank_event("case_start", 0, repeat=1))
    assert watched.row().gb_s == 3.0
    watched.take(rank_event("metric", 0, name="up", value=4.0, repeat=1))
    assert watched.row().gb_s == 4.0
    watched.take(rank_event("metric", 0, name="up", value=None, repeat=1))
    assert watched.row().gb_s is None


def test_rate_is_the_last_sample_if_there_are_samples():
    watched = WatchedRows(*make_started_run(describe_case(metrics=RATES, repeat=2)))
    watched.take(
        time_samples(0, 7.0, 8.0, metric="up"), time_samples(0, 9.0, 6.0, metric="up", repeat=1)
    )
    assert (watched.row(0).gb_s, watched.row(1).gb_s) == (6.0, None)


def test_case_without_a_gb_s_metric_has_no_rate():
    watched = WatchedRows(*make_started_run(), rank_event("metric", 0, name="up", value=3.0))
    assert watched.row().gb_s is None


# Slowest and distribution


def test_slowest_ranks_come_first_and_untimed_ranks_last():
    watched = WatchedRows(*make_started_run(hosts=["node01"] * 5))
    watched.take(time_samples(1, 1.0), time_samples(3, 9.0), time_samples(4, 5.0))
    assert [row.rank for row in watched.rows.slowest(2)] == [3, 4]
    assert [row.rank for row in watched.rows.slowest(4)] == [3, 4, 1, 0]
    assert [row.rank for row in watched.rows.slowest(9)] == [3, 4, 1, 0, 2]
