"""The load of each host during a run."""

import pytest

from spbench.record.machine.host_loads import HISTORY_LENGTH
from spbench.report.build import build_report
from spbench_core.events.fields import EventError
from spbench_core.events.rank_events import check_rank_event
from support import sample_events as events


def heartbeats(*loads, rank=0):
    return [events.rank_event("heartbeat", rank, load=load) for load in loads]


def test_reports_mean_and_maximum_load_per_host():
    state = events.build_state(
        [
            *events.make_started_run(hosts=("node01", "node02")),
            *heartbeats({"cpu": 0.5, "sent": 10}, {"cpu": 1.0, "sent": 30}),
            *heartbeats({"cpu": 0.2}, rank=1),
            events.run_end(),
        ]
    )
    assert state.host_loads.hosts() == ["node01", "node02"]
    assert list(state.host_loads.get("node01", "cpu").last) == [0.5, 1.0]
    first, second = build_report(state)["hosts"]
    assert first["cpu"] == {"mean": 0.75, "most": 1.0}
    assert first["sent"] == {"mean": 20.0, "most": 30.0}
    assert (second["host"], second["cpu"]["most"], second["gpu"]) == ("node02", 0.2, None)


def test_history_is_bounded_but_the_mean_covers_all_readings():
    state = events.build_state(
        [
            *events.make_started_run(),
            *heartbeats(*({"cpu": 1.0},) * HISTORY_LENGTH, *({"cpu": 0.0},) * HISTORY_LENGTH),
        ]
    )
    history = state.host_loads.get("node01", "cpu")
    assert (len(history.last), history.mean, history.maximum) == (HISTORY_LENGTH, 0.5, 1.0)
    assert set(history.last) == {0.0}


def test_rejects_a_load_that_is_not_a_number():
    with pytest.raises(EventError, match="load"):
        check_rank_event(events.rank_event("heartbeat", load={"cpu": "all"}))
