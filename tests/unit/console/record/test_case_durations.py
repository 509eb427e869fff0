"""Durations of cases and of job starts, computed from the times in a report."""

from functools import partial

import pytest

from spbench.record.runs.case_durations import CaseTimes, hash_work, measure_durations
from spbench.record.runs.index import find_past_durations
from spbench_core.events.statuses import CaseStatus
from support.sample_events import make_complete_run, record_run

WORK_HASHES = [hash_work("compute.gemm", 1, 2, {"n": 512})]
MACHINE = {"id": "abc", "hosts": ["node01"], "cores": [2]}


def case_times(name, started, finished, *launches, status="passed", repeats=1):
    return CaseTimes(name, CaseStatus(status), started, finished, launches or (1,), repeats)


def test_fault_of_another_case_does_not_change_the_work_hash():
    def hash_case(*options, case_id="a[n=1]"):
        return hash_work("compute.gemm", 1, 2, {"n": 1}, options, case_id)

    plain = hash_case()
    assert hash_case("--inject", "slow=2@b") == hash_case("--inject=slow@b[n=1]") == plain
    fault_hashes = [hash_case("--inject", fault) for fault in ("slow@a", "slow@a[n=1]", "slow")]
    assert plain not in fault_hashes
    assert len(set(fault_hashes)) == 3


def test_measures_cases_of_consecutive_jobs():
    cases = [case_times("a", 2.5, 3.0), case_times("b", 3.0, 7.0), case_times("c", 8.0, 8.25, 2)]
    durations = measure_durations(1.0, cases)
    assert {name: value.seconds for name, value in durations.items()} == {
        "a": 0.5,
        "b": 4.0,
        "c": 0.25,
    }
    assert {name: value.start_seconds for name, value in durations.items()} == {
        "a": 1.5,
        "b": None,
        "c": 1.0,
    }


def test_repeats_in_separate_launches_are_averaged():
    """Two cases, three launches: 2 s to start, 1 s and 4 s of work."""
    cases = [case_times("a", 2.0, 17.0, 1, 2, 3), case_times("b", 3.0, 21.0, 1, 2, 3)]
    durations = measure_durations(0.0, cases)
    assert (durations["a"].seconds, durations["b"].seconds) == (1.0, 4.0)
    assert (durations["a"].start_seconds, durations["a"].num_launches) == (2.0, 3)


def test_duration_of_a_single_case_job_excludes_launch_starts():
    """Three launches of 2 s to start and 1 s of work."""
    durations = measure_durations(0.0, [case_times("a", 2.0, 9.0, 1, 2, 3)])
    assert (durations["a"].seconds, durations["a"].start_seconds) == (1.0, 2.0)


def test_measures_repeats_of_interleaved_jobs():
    """Two jobs of one case, three launches each: 2 s to start, 1 s and 4 s of work."""
    cases = [case_times("a", 2.0, 21.0, 1, 3, 5), case_times("b", 5.0, 27.0, 2, 4, 6)]
    durations = measure_durations(0.0, cases)
    assert (durations["a"].seconds, durations["b"].seconds) == (1.0, 4.0)
    assert (durations["a"].start_seconds, durations["b"].start_seconds) == (2.0, 2.0)


def test_measures_additional_repeats_of_one_case_of_a_job():
    """Two launches of 2 s to start: 1 s and 4 s of work, then 4 s."""
    cases = [case_times("a", 2.0, 3.0, 1), case_times("b", 3.0, 13.0, 1, 2)]
    assert measure_durations(0.0, cases)["b"].seconds == 4.0


def test_repeats_within_one_launch_share_its_time():
    assert measure_durations(0.0, [case_times("a", 1.0, 7.0, repeats=3)])["a"].seconds == 2.0


def test_timed_out_case_has_no_duration():
    cases = [case_times("a", 1.0, 31.0, status="timeout"), case_times("b", 45.0, 46.0, 2)]
    durations = measure_durations(0.0, cases)
    assert durations.keys() == {"b"}
    assert durations["b"].start_seconds is None, "the end of the broken job is part of that time"


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def record_duration(home, seconds, **machine):
    folder = record_run(home, make_complete_run(), verdict="passed", exit_code=0, finished=9.0)
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


def test_empty_index_reads_only_the_newest_reports_first(home):
    runs = sorted(record_duration(home, seconds).id for seconds in (4, 5, 6))
    find_durations = partial(find_past_durations, home, WORK_HASHES, ["node01"], 2, max_reports=2)
    assert [row.run for row in find_durations()] == runs[:0:-1]
    assert len(find_durations()) == 3, "the others follow"


def test_past_durations_list_the_newest_run_first(home):
    first = record_duration(home, 4)
    second = record_duration(home, 5)
    record_duration(home, 6, hosts=["node02"])
    record_duration(home, 7, cores=[64])
    rows = find_past_durations(home, WORK_HASHES, ["node01"], 2)
    newest, oldest = sorted((first.id, second.id), reverse=True)
    assert [row.run for row in rows] == [newest, oldest]
    assert {row.seconds for row in rows} == {4.0, 5.0}
    assert {row.start for row in rows} == {2.0}
    assert len(find_past_durations(home, WORK_HASHES, ["node01"], None)) == 3
    assert (
        find_past_durations(home, [hash_work("compute.gemm", 1, 2, {"n": 64})], ["node01"], 2) == []
    )
