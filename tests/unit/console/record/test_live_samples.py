"""Samples of a running case, folded as in its report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spbench.record.rank_rows import RankRows
from spbench.record.runs.follow import RecordedEvents
from spbench.record.runs.playback import find_demo_run
from spbench.record.state import RunState
from spbench.record.timeline import LiveSamples
from support.sample_events import TIME, describe_case, describe_metric, make_started_run, rank_event


def take_samples(state, rank, *values, **fields):
    state.apply(rank_event("samples", rank, values=list(values), **fields))


def started_state(**changes):
    state = RunState()
    metrics = [TIME, describe_metric("rate", "GB/s", "higher", "min")]
    hosts = ["node01"] * changes.get("np", 2)
    for event in make_started_run(describe_case(metrics=metrics, **changes), hosts=hosts):
        state.apply(event)
    return state, state.cases["a"]


def expected_values(case, name):
    return sorted(value for values in case.fold_samples(name) for value in values)


def sorted_values(samples):
    return list(samples.values)


def test_median_is_over_the_slowest_rank_of_each_iteration():
    state, case = started_state()
    samples = LiveSamples(case, "time_ms")
    take_samples(state, 0, 9.0, 1.0, 1.0)
    samples.update()
    assert len(samples) == 0
    take_samples(state, 1, 2.0, 2.0, 8.0)
    samples.update()
    # The ranks' medians are 1 and 2: the median of the slowest rank would be 2.
    assert samples.median() == case.summary("time_ms").p50 == 8.0
    assert sorted_values(samples) == [2.0, 8.0, 9.0]


def test_samples_of_a_rank_exclude_other_ranks():
    state, case = started_state()
    samples = LiveSamples(case, "time_ms", 1)
    take_samples(state, 0, 9.0, 1.0)
    samples.update()
    assert len(samples) == 0
    take_samples(state, 1, 2.0)
    samples.update()
    take_samples(state, 1, 4.0, 8.0, repeat=1)
    samples.update()
    assert sorted_values(samples) == [2.0, 4.0, 8.0]
    assert samples.median() == case.compute_rank_medians()[1] == 4.0


batches = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 2),
        st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=5),
        st.booleans(),
        st.booleans(),
    ),
    max_size=30,
)


@pytest.mark.parametrize("name", ["time_ms", "rate"])
@given(batches=batches, shares=st.sampled_from([(), (2, 2), (1, 3)]))
def test_live_samples_always_equal_those_of_the_report(name, batches, shares):
    state, case = started_state(np=4, repeat=3, shares=list(shares))
    samples = LiveSamples(case, name)
    ended = set()
    for rank, repeat, values, ends, is_read in batches:
        if (rank, repeat) in ended:
            continue
        take_samples(state, rank, *values, repeat=repeat, metric=name)
        if ends:
            ended.add((rank, repeat))
            state.apply(rank_event("case_end", rank, repeat=repeat))
        if is_read:
            samples.update()
            assert sorted_values(samples) == expected_values(case, name)
    for rank in range(4):
        for repeat in range(3):
            if (rank, repeat) not in ended:
                state.apply(rank_event("case_end", rank, repeat=repeat))
    samples.update()
    assert sorted_values(samples) == expected_values(case, name)
    if samples:
        assert samples.median() == case.summary(name).p50


def test_live_times_of_the_demo_end_at_the_final_times():
    state = RunState()
    rows = RankRows(state)
    live = {}
    for event in RecordedEvents(find_demo_run().events):
        state.apply(event)
        rows.update(event)
        if event["event"] == "case_end" and rows.case is not None:
            live[rows.case.id] = rows.headline_time()
    assert live
    for name, time in live.items():
        assert time == state.cases[name].summary("time_ms").p50
