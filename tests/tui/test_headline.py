"""Tests of the number of hosts in the headline of a run."""

from benchmarks.synthetic_run import PER_HOST, build_start

from spbench.record.state import RunState
from spbench.tui.run.headline import HostCount
from spbench_core.events.rank_events import RankFacts


def test_hosts_are_counted_again_when_ranks_have_started():
    state = RunState()
    count = HostCount()
    counts = []
    for event in build_start(3 * PER_HOST, 0.0):
        state.apply(event)
        if event["event"] == "ready":
            counts.append(count.update(state))
    assert counts == [1 + rank // PER_HOST for rank in range(3 * PER_HOST)]


def test_hosts_are_not_counted_again_without_a_change():
    state = RunState()
    for event in build_start(2 * PER_HOST, 0.0):
        state.apply(event)
    count = HostCount()
    assert count.update(state) == 2
    for rank in state.ranks.values():
        rank.facts = RankFacts("the same host")
    assert count.update(state) == 2
