"""Tests of ``spbench gate check``: output and exit codes."""

from __future__ import annotations

import json

import pytest

from spbench.report.gate import check as gate
from support.sample_events import (
    case_judged,
    describe_case,
    job_start,
    rank_event,
    record_run,
    run_end,
    run_start,
)

STEADY = [1.0, 1.01, 1.02, 0.99, 0.98]
NOISY = [1.0, 1.5, 0.7, 1.3, 0.8]


def record(home, **cases):
    """Record a run of cases by the times of their launches, or None if it failed."""
    events = [run_start(*(describe_case(name, repeat=5, checks=[]) for name in cases))]
    job = 0
    for name, times in cases.items():
        for repeat, time in enumerate(times or ()):
            job += 1
            events.append(job_start(name, job=job))
            for rank in (0, 1):
                head = {"case": name, "repeat": repeat, "job": job}
                events.append(rank_event("case_start", rank, **head))
                events.append(rank_event("samples", rank, **head, values=[time]))
        events.append(case_judged(name, status="passed" if times else "error"))
    record_run(home, [*events, run_end()])


def test_each_case_has_its_smallest_detected_slowdown(spbench, home, messages):
    record(home, steady=STEADY, noisy=NOISY, alone=[1.0], gone=None)
    status, out, err = spbench("gate", "check", "last")
    assert (status, err) == (0, "")
    head, steady, noisy, single, failed, *notes = out.splitlines()
    assert head.split() == ["smallest", "found", "case", "launches", "needed", "false", "alarms"]
    assert steady.split()[:4] == ["10", "%", "steady", "5"]
    assert noisy.split()[:5] == ["?", "none", "found", "noisy", "5"]
    assert noisy.split()[5].isdecimal()
    assert single.split() == ["?", "none", "found", "alone", "1", "5"]
    assert failed.split() == ["✗", "no", "time", "gone"]
    text = " ".join(line.strip() for line in notes)
    messages.check(text)


def test_baseline_is_checked_like_a_run(spbench, home):
    record(home, a=STEADY)
    assert spbench("baseline", "set", "main", "last")[0] == 0
    status, out, err = spbench("gate", "check", "main")
    assert (status, err) == (0, "")
    assert out.splitlines()[1].split()[:4] == ["10", "%", "a", "5"]


def test_json_has_the_detection_rates(spbench, home):
    record(home, steady=STEADY)
    status, out, _ = spbench("gate", "check", "last", "--format", "json", "--resamples", "40")
    document = json.loads(out)
    assert (status, document["resamples"], document["seed"], document["power"]) == (0, 40, 1, 0.8)
    (steady,) = document["cases"]
    assert (steady["smallest"], steady["error"], steady["needed"]) == (0.1, True, None)
    assert steady["found"][-1]["slowdown"] == 0.1


@pytest.mark.parametrize(
    ("times", "percent", "status"), [(STEADY, "10", 0), (STEADY, "5", 1), (NOISY, "50", 1)]
)
def test_must_find_fails_if_the_gate_finds_less(spbench, home, times, percent, status):
    record(home, a=times)
    assert spbench("gate", "check", "last", "--must-find", percent)[0] == status


def test_case_without_times_fails_must_find(spbench, home):
    record(home, a=STEADY, gone=None)
    assert spbench("gate", "check", "last")[0] == 0
    assert spbench("gate", "check", "last", "--must-find", "50")[0] == 1


def test_undetected_slowdown_exits_with_6(spbench, home, messages):
    record(home, a=[1.0], noisy=NOISY)
    status, _, err = spbench("gate", "check", "last")
    assert status == 6
    messages.check(err)


def test_unreported_error_fails_the_check(spbench, home, monkeypatch, messages):
    record(home, a=STEADY)
    monkeypatch.setattr(gate, "finds_error", lambda case: False)
    status, out, _ = spbench("gate", "check", "last")
    assert status == 1
    messages.check(out)


def test_run_without_times_exits_with_5(spbench, home):
    record(home, gone=None)
    status, out, err = spbench("gate", "check", "last")
    assert (status, "gone" in out) == (5, True)
    assert "has no case with a time that can be compared" in err


@pytest.mark.parametrize(
    "args", [("check", "2030"), ("check",), ("check", "last", "--format", "x"), ()]
)
def test_invalid_arguments_exit_with_2(spbench, home, args):
    record(home, a=STEADY)
    status, _, err = spbench("gate", *args)
    assert status == 2
    assert err
