"""What is said on stderr where a case takes long, by a clock of the test's own."""

from spbench_workers.standalone.progress_reporter import ProgressReporter


def quiet_at(monkeypatch, now):
    monkeypatch.setattr("spbench_workers.standalone.progress_reporter.monotonic", lambda: now[0])
    silence = ProgressReporter()
    silence.close()
    return silence


def test_a_phase_is_told_after_two_seconds_and_then_more_rarely(monkeypatch):
    now = [100.0]
    silence = quiet_at(monkeypatch, now)
    silence.note_progress("check", 0, 4)
    assert silence.next_message(101.9) is None
    assert silence.next_message(102.0) == "spbench_workers: check: 0 %, 2 s so far"
    silence.note_progress("check", 1, 4)
    assert silence.next_message(105.9) is None
    assert silence.next_message(106.0) == "spbench_workers: check: 25 %, 6 s so far, 18 s yet"


def test_a_line_that_was_printed_counts_as_said_and_a_new_phase_begins_anew(monkeypatch):
    now = [100.0]
    silence = quiet_at(monkeypatch, now)
    now[0] = 101.5
    silence.note_output()
    assert silence.next_message(103.0) is None
    now[0] = 103.4
    silence.note_progress("baseline", 0, 1)
    assert silence.next_message(105.0) is None
    assert silence.next_message(105.4) == "spbench_workers: baseline: 2 s so far"
