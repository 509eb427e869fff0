"""Progress messages on stderr if a case takes long, with a simulated clock."""

from spbench_workers.standalone.progress_reporter import ProgressReporter


def create_reporter(monkeypatch, now):
    monkeypatch.setattr("spbench_workers.standalone.progress_reporter.monotonic", lambda: now[0])
    reporter = ProgressReporter()
    reporter.close()
    return reporter


def test_reports_a_phase_after_two_seconds_then_less_often(monkeypatch, messages):
    now = [100.0]
    reporter = create_reporter(monkeypatch, now)
    reporter.note_progress("check", 0, 4)
    assert reporter.next_message(101.9) is None
    messages.check(reporter.next_message(102.0))
    reporter.note_progress("check", 1, 4)
    assert reporter.next_message(105.9) is None
    messages.check(reporter.next_message(106.0))


def test_output_and_a_new_phase_restart_the_clock(monkeypatch, messages):
    now = [100.0]
    reporter = create_reporter(monkeypatch, now)
    now[0] = 101.5
    reporter.note_output()
    assert reporter.next_message(103.0) is None
    now[0] = 103.4
    reporter.note_progress("baseline", 0, 1)
    assert reporter.next_message(105.0) is None
    messages.check(reporter.next_message(105.4))
