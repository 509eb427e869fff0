"""The recorder: log, state and view of a run, and failures of each."""

import os

import pytest

from spbench.engine.recorder import Recorder
from spbench.errors import FailedRunError
from spbench.record.runs import event_log
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.follow import RecordedEvents
from spbench.record.state import RunState
from support.sample_events import rank_event, run_end, run_start


def record_event(recorder, event):
    recorder.record(
        event["event"],
        **{name: event[name] for name in event if name not in ("event", "time")},
    )


def test_resumed_run_continues_after_the_times_of_its_log(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    recorder = Recorder(log, RunState(), lambda event: None, clock=lambda: 500.0)
    recorder.continue_after(1000.0)
    recorder.continue_after(900.0)
    record_event(recorder, run_start())
    record_event(recorder, run_end())
    log.close()
    times = [event["time"] for event in RecordedEvents(tmp_path / "events.jsonl")]
    assert times == [1000.0, 1000.0]


def test_view_and_state_get_the_text_that_the_log_gives(tmp_path):
    viewed = []
    log = EventLog(tmp_path / "events.jsonl")
    recorder = Recorder(log, RunState(), viewed.append)
    record_event(recorder, run_start() | {"description": "\x1b[2J"})
    log.close()
    assert viewed == list(RecordedEvents(tmp_path / "events.jsonl"))
    assert recorder.state.run.description == "?[2J"


@pytest.mark.parametrize("error", [BrokenPipeError, OSError(5, "Input/output error")])
def test_drops_a_view_with_a_lost_terminal_and_continues(tmp_path, error):
    viewed = []

    def view(event):
        viewed.append(event["event"])
        raise error

    log = EventLog(tmp_path / "events.jsonl")
    recorder = Recorder(log, RunState(), view)
    for event in (run_start(), run_end()):
        record_event(recorder, event)
    log.close()
    assert viewed == ["run_start"]
    assert recorder.state.run.status == "passed"
    assert [event["event"] for event in RecordedEvents(tmp_path / "events.jsonl")] == [
        "run_start",
        "run_end",
    ]


def test_reports_a_defect_of_a_view_once_and_continues(tmp_path, capsys):
    log = EventLog(tmp_path / "events.jsonl")
    recorder = Recorder(log, RunState(), lambda event: 1 / 0)
    for event in (run_start(), run_end()):
        record_event(recorder, event)
    log.close()
    assert recorder.state.run.status == "passed"
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("spbench: the run continues unseen: a defect of spbench at engine/rec")
    assert line.endswith("ZeroDivisionError: division by zero")


def test_reports_a_full_disk_once_and_updates_the_state(tmp_path, monkeypatch, messages):
    path = tmp_path / "events.jsonl"
    monkeypatch.setattr(event_log, "open_to_append", lambda *_: os.open("/dev/full", os.O_RDWR))
    log = EventLog(path)
    recorder = Recorder(log, RunState(), lambda event: None)
    with messages.raises(FailedRunError):
        record_event(recorder, run_start())
    record_event(recorder, run_start())
    record_event(recorder, run_end())
    log.close()
    assert recorder.state.run.status == "passed"


@pytest.mark.parametrize("replacement", [None, b"another log"])
def test_reports_a_removed_log(tmp_path, replacement, messages):
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    recorder = Recorder(log, RunState(), lambda event: None)
    record_event(recorder, run_start())
    path.unlink()
    if replacement is not None:
        path.write_bytes(replacement)
    with messages.raises(FailedRunError):
        record_event(recorder, run_end())
    log.close()


def test_reports_a_removed_log_while_ranks_send_events(tmp_path):
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    recorder = Recorder(log, RunState(), lambda event: None)
    record_event(recorder, run_start())
    path.unlink()
    recorder.record_batch(
        1, [b"{}"], [rank_event("heartbeat")]
    )  # less than a second after the last check
    recorder._next_path_check = 0.0
    with pytest.raises(FailedRunError, match="was removed"):
        recorder.record_batch(1, [b"{}"], [rank_event("heartbeat")])
    log.close()
