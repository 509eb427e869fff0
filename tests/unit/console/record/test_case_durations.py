"""Durations of cases and of the starts of jobs, from the times that a report has."""

import pytest

from spbench.record.runs.case_durations import CaseTimes, hash_work, measure_durations
from spbench.record.runs.index import find_past_durations
from spbench_core.events.statuses import CaseStatus
from unit.events import recorded, whole_run

WORKS = [hash_work("compute.gemm", 1, 2, {"n": 512})]
MACHINE = {"id": "abc", "hosts": ["node01"], "cores": [2]}


def times(name, started, finished, *launches, status="passed", repeats=1):
    return CaseTimes(name, CaseStatus(status), started, finished, launches or (1,), repeats)


def test_a_fault_of_another_case_is_no_other_work():
    def work(*words, case_id="a[n=1]"):
        return hash_work("compute.gemm", 1, 2, {"n": 1}, words, case_id)

    plain = work()
    assert work("--inject", "slow=2@b") == work("--inject=slow@b[n=1]") == plain
    planted = [work("--inject", fault) for fault in ("slow@a", "slow@a[n=1]", "slow")]
    assert plain not in planted
    assert len(set(planted)) == 3


def test_cases_of_jobs_that_run_one_after_another():
    cases = [times("a", 2.5, 3.0), times("b", 3.0, 7.0), times("c", 8.0, 8.25, 2)]
    durations = measure_durations(1.0, cases)
    assert {name: value.seconds for name, value in durations.items()} == {
        "a": 0.5,
        "b": 4.0,
        "c": 0.25,
    }
    assert {name: value.start for name, value in durations.items()} == {
        "a": 1.5,
        "b": None,
        "c": 1.0,
    }


def test_repeats_in_launches_of_their_own_are_not_taken_for_one_long_case():
    """Two cases, three launches: 2 s to start, 1 s and 4 s of work."""
    cases = [times("a", 2.0, 17.0, 1, 2, 3), times("b", 3.0, 21.0, 1, 2, 3)]
    durations = measure_durations(0.0, cases)
    assert (durations["a"].seconds, durations["b"].seconds) == (1.0, 4.0)
    assert (durations["a"].start, durations["a"].launches) == (2.0, 3)


def test_repeats_of_a_case_alone_in_its_job_are_without_the_starts_of_its_launches():
    """Three launches of 2 s to start and 1 s of work."""
    durations = measure_durations(0.0, [times("a", 2.0, 9.0, 1, 2, 3)])
    assert (durations["a"].seconds, durations["a"].start) == (1.0, 2.0)


def test_repeats_of_jobs_by_turns():
    """Two jobs of one case each, three launches of each: 2 s to start, 1 s and 4 s of work."""
    cases = [times("a", 2.0, 21.0, 1, 3, 5), times("b", 5.0, 27.0, 2, 4, 6)]
    durations = measure_durations(0.0, cases)
    assert (durations["a"].seconds, durations["b"].seconds) == (1.0, 4.0)
    assert (durations["a"].start, durations["b"].start) == (2.0, 2.0)


def test_repeats_beyond_those_of_the_other_case_of_a_job():
    """Two launches of 2 s to start: 1 s and 4 s of work, then 4 s."""
    cases = [times("a", 2.0, 3.0, 1), times("b", 3.0, 13.0, 1, 2)]
    assert measure_durations(0.0, cases)["b"].seconds == 4.0


def test_repeats_within_one_launch_share_its_time():
    assert measure_durations(0.0, [times("a", 1.0, 7.0, repeats=3)])["a"].seconds == 2.0


def test_cases_that_were_cut_short_have_no_duration():
    cases = [times("a", 1.0, 31.0, status="timeout"), times("b", 45.0, 46.0, 2)]
    durations = measure_durations(0.0, cases)
    assert durations.keys() == {"b"}
    assert durations["b"].start is None, "the end of the broken job is part of that time"


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def ended(home, seconds, **machine):
    folder = recorded(home, whole_run(), verdict="passed", exit_code=0, finished=9.0)
    case = {
        "id": "a",
        "benchmark": "compute.gemm",
        "np": 2,
        "params": {"n": 512},
        "status": "passed",
        "started": "2026-01-01T00:00:03Z",
        "finished": f"2026-01-01T00:00:{3 + seconds:09.6f}Z",
        "launches": [1],
    }
    report = {
        "schema": "spbench.report/1",
        "run": {"started": "2026-01-01T00:00:01Z"},
        "environment": {"fingerprint": MACHINE | machine},
        "cases": [case],
    }
    folder.write_json("report.json", report)
    return folder


def test_an_index_without_runs_reads_the_newest_reports_only(home, monkeypatch):
    runs = sorted(ended(home, seconds).id for seconds in (4, 5, 6))
    monkeypatch.setattr("spbench.record.runs.index.MAX_REPORTS_READ", 2)
    assert [row.run for row in find_past_durations(home, WORKS, ["node01"], 2)] == runs[:0:-1]
    assert len(find_past_durations(home, WORKS, ["node01"], 2)) == 3, "the others follow"


def test_durations_on_the_same_hosts_the_newest_run_first(home):
    first = ended(home, 4)
    second = ended(home, 5)
    ended(home, 6, hosts=["node02"])
    ended(home, 7, cores=[64])
    rows = find_past_durations(home, WORKS, ["node01"], 2)
    newest, oldest = sorted((first.id, second.id), reverse=True)
    assert [row.run for row in rows] == [newest, oldest]
    assert {row.seconds for row in rows} == {4.0, 5.0}
    assert {row.start for row in rows} == {2.0}
    assert len(find_past_durations(home, WORKS, ["node01"], None)) == 3
    assert (
        find_past_durations(home, [hash_work("compute.gemm", 1, 2, {"n": 64})], ["node01"], 2) == []
    )
