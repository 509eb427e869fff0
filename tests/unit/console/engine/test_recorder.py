import os

import pytest

from spbench.engine.recorder import Recorder
from spbench.errors import FailedRunError
from spbench.record.runs import event_log
from spbench.record.runs.event_log import EventLog
from spbench.record.runs.follow import RecordedEvents
from spbench.record.state import RunState
from unit.events import rank_event, run_end, run_start


def say(recorder, event):
    recorder.record(
        event["event"],
        **{name: event[name] for name in event if name not in ("event", "time")},
    )


def test_a_resumed_run_is_not_earlier_than_its_log(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    recorder = Recorder(log, RunState(), lambda event: None, clock=lambda: 500.0)
    recorder.continue_after(1000.0)
    recorder.continue_after(900.0)
    say(recorder, run_start())
    say(recorder, run_end())
    log.close()
    times = [event["time"] for event in RecordedEvents(tmp_path / "events.jsonl")]
    assert times == [1000.0, 1000.0]


def test_a_text_is_shown_as_a_reader_of_the_log_gets_it(tmp_path):
    seen = []
    log = EventLog(tmp_path / "events.jsonl")
    recorder = Recorder(log, RunState(), seen.append)
    say(recorder, run_start() | {"description": "\x1b[2J"})
    log.close()
    assert seen == list(RecordedEvents(tmp_path / "events.jsonl"))
    assert recorder.state.run.description == "?[2J"


@pytest.mark.parametrize("error", [BrokenPipeError, OSError(5, "Input/output error")])
def test_a_view_whose_terminal_has_gone_is_dropped_and_the_run_goes_on(tmp_path, error):
    seen = []

    def view(event):
        seen.append(event["event"])
        raise error

    log = EventLog(tmp_path / "events.jsonl")
    recorder = Recorder(log, RunState(), view)
    for event in (run_start(), run_end()):
        say(recorder, event)
    log.close()
    assert seen == ["run_start"]
    assert recorder.state.run.verdict == "passed"
    assert [event["event"] for event in RecordedEvents(tmp_path / "events.jsonl")] == [
        "run_start",
        "run_end",
    ]


def test_a_defect_of_a_view_is_told_once_and_the_run_goes_on(tmp_path, capsys):
    log = EventLog(tmp_path / "events.jsonl")
    recorder = Recorder(log, RunState(), lambda event: 1 / 0)
    for event in (run_start(), run_end()):
        say(recorder, event)
    log.close()
    assert recorder.state.run.verdict == "passed"
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("spbench: the run continues unseen: a defect of spbench at engine/rec")
    assert line.endswith("ZeroDivisionError: division by zero")


def test_a_log_that_is_full_is_told_once_and_the_state_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    monkeypatch.setattr(event_log, "open_to_append", lambda *_: os.open("/dev/full", os.O_RDWR))
    log = EventLog(path)
    recorder = Recorder(log, RunState(), lambda event: None)
    with pytest.raises(FailedRunError, match="No space left on device"):
        say(recorder, run_start())
    say(recorder, run_start())
    say(recorder, run_end())
    log.close()
    assert recorder.state.run.verdict == "passed"


@pytest.mark.parametrize("put_in_its_place", [None, b"another log"])
def test_a_log_that_was_removed_is_told(tmp_path, put_in_its_place):
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    recorder = Recorder(log, RunState(), lambda event: None)
    say(recorder, run_start())
    path.unlink()
    if put_in_its_place is not None:
        path.write_bytes(put_in_its_place)
    with pytest.raises(FailedRunError, match=r"events\.jsonl was removed while the run went on"):
        say(recorder, run_end())
    log.close()


def test_a_log_that_was_removed_is_told_while_ranks_speak(tmp_path):
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    recorder = Recorder(log, RunState(), lambda event: None)
    say(recorder, run_start())
    path.unlink()
    recorder.record_batch(1, [b"{}"], [rank_event("heartbeat")])  # within a second of the last look
    recorder._next_check = 0.0
    with pytest.raises(FailedRunError, match="was removed"):
        recorder.record_batch(1, [b"{}"], [rank_event("heartbeat")])
    log.close()
