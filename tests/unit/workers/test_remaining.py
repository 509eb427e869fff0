"""The remaining cases of a batch job after launches with different ends."""

import json

import pytest

from spbench_workers.remaining import list_remaining, main
from support.sample_events import rank_event

CASES = [{"id": name, "repeat": 0} for name in "abc"]


@pytest.fixture
def job(tmp_path):
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    return tmp_path


def write_launch(job, number, ranks, status="1 100.0", torn=b""):
    """Write a launch in which these cases started and ended on two ranks.

    An upper-case letter is a case that started and did not end.
    """
    folder = job / str(number)
    (folder / "events").mkdir(parents=True)
    (folder / "cases.json").write_text(json.dumps(CASES))
    if status is not None:
        (folder / "status").write_text(status)
    for rank, cases in enumerate(ranks):
        events = [rank_event("hello", rank), rank_event("ready", rank)]
        for case in cases:
            events.append(rank_event("case_start", rank, case=case.lower()))
            if case.islower():
                events.append(rank_event("case_end", rank, case=case))
        lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
        (folder / "events" / f"{rank}.jsonl").write_bytes(lines + torn)


def read_remaining(job):
    return "".join(case["id"] for case in list_remaining(job))


def test_does_not_repeat_a_case_that_failed(job):
    write_launch(job, 1, ["aB", "a"], torn=b'{"event":"case_sta')
    assert read_remaining(job) == "c"


@pytest.mark.parametrize("status", [None, "143 100.0 TERM 99.0"])
def test_repeats_a_case_that_was_interrupted(job, status):
    write_launch(job, 1, ["aB", "aB"], status)
    assert read_remaining(job) == "bc"


def test_repeats_a_case_that_some_ranks_did_not_end(job):
    write_launch(job, 1, ["ab", "aB"], None)
    assert read_remaining(job) == "bc"


def test_nothing_remains_after_all_cases(job):
    write_launch(job, 1, ["ab", "ab"])
    write_launch(job, 2, ["c", "c"], "0 200.0")
    assert read_remaining(job) == ""


def test_gives_up_after_two_launches_that_start_nothing(job):
    write_launch(job, 1, ["", ""])
    assert read_remaining(job) == "abc"
    write_launch(job, 2, ["", ""], None)  # a requeue between them does not count
    write_launch(job, 3, ["", ""])
    assert read_remaining(job) == ""


def test_interrupted_launch_that_starts_a_case_is_not_idle(job):
    write_launch(job, 1, ["", ""])
    write_launch(job, 2, ["a", "a"], None)
    write_launch(job, 3, ["", ""])
    assert read_remaining(job) == "bc"


def test_writes_the_cases_of_the_next_launch(job):
    write_launch(job, 1, ["A", "A"])
    (job / "2").mkdir()
    assert main([str(job), "2"]) == 0
    assert [case["id"] for case in json.loads((job / "2/cases.json").read_text())] == ["b", "c"]
    (job / "cases.json").write_text("[]")
    (job / "3").mkdir()
    assert main([str(job), "3"]) == 1
    assert not (job / "3/cases.json").exists()
