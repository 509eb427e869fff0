"""What a batch job has left to run after launches that ended in one way or another."""

import json

import pytest

from spbench_workers.remaining import list_remaining, main
from unit.events import rank_event

CASES = [{"id": name, "repeat": 0} for name in "abc"]


@pytest.fixture
def job(tmp_path):
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    return tmp_path


def launched(job, number, ranks, status="1 100.0", torn=b""):
    """A launch whose two ranks have started and ended these cases, and said no more."""
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


def left(job):
    return "".join(case["id"] for case in list_remaining(job))


def test_a_case_that_was_under_way_in_a_fault_is_not_run_again(job):
    launched(job, 1, ["aB", "a"], torn=b'{"event":"case_sta')
    assert left(job) == "c"


@pytest.mark.parametrize("status", [None, "143 100.0 TERM 99.0"])
def test_a_case_that_was_interrupted_from_outside_is_run_again(job, status):
    launched(job, 1, ["aB", "aB"], status)
    assert left(job) == "bc"


def test_a_case_that_not_all_ranks_have_ended_is_not_whole(job):
    launched(job, 1, ["ab", "aB"], None)
    assert left(job) == "bc"


def test_all_is_run_once(job):
    launched(job, 1, ["ab", "ab"])
    launched(job, 2, ["c", "c"], "0 200.0")
    assert left(job) == ""


def test_two_launches_in_a_row_that_start_nothing_are_the_last(job):
    launched(job, 1, ["", ""])
    assert left(job) == "abc"
    launched(job, 2, ["", ""], None)  # a requeue in between counts for nothing
    launched(job, 3, ["", ""])
    assert left(job) == ""


def test_the_next_launch_gets_its_cases(job):
    launched(job, 1, ["A", "A"])
    (job / "2").mkdir()
    assert main([str(job), "2"]) == 0
    assert [case["id"] for case in json.loads((job / "2/cases.json").read_text())] == ["b", "c"]
    (job / "cases.json").write_text("[]")
    (job / "3").mkdir()
    assert main([str(job), "3"]) == 1
    assert not (job / "3/cases.json").exists()
