"""The choice of the earlier run that a run is compared with."""

from dataclasses import replace

import pytest

from spbench.errors import UsageError
from spbench.record.machine.fingerprint import ComparedMachine
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.history import index_ended_run, make_summary
from spbench.record.runs.indexed_report import REPORT
from spbench.report.model import CasePart
from spbench.report.previous_times import (
    MAX_LOADED,
    explain_other_conditions,
    find_previous_run,
)
from spbench.report.recorded import RecordedRun
from spbench_core.events.statuses import RunStatus


def summarize(home, day, suite="halo", verdict="passed"):
    folder = RunFolder(home / "runs" / f"202611{day:02}-083000-{suite}")
    return make_summary(folder, {"suite": suite, "verdict": verdict})


def make_load(cases_by_run, launches=None):
    """Return a loader of runs with these cases; other runs cannot be read.

    Args:
        cases_by_run: The ids of the cases by run.
        launches: The launches of each case by run. Default: 1.
    """

    def load(folder):
        if folder.id not in cases_by_run:
            raise UsageError(f"run {folder.id}: its folder was deleted")
        times = [1.0] * (launches or {}).get(folder.id, 1)
        metrics = {"time_ms": None} if times else {}
        case = CasePart.model_construct(metrics=metrics, medians={"time_ms": times})
        cases = dict.fromkeys(cases_by_run[folder.id], case)
        return RecordedRun(make_summary(folder, {}), cases)

    return load


@pytest.mark.parametrize(
    ("earlier", "expected_day"),
    [
        ([(2, "halo", "a"), (1, "halo", "a")], 2),
        ([(2, "halo", "b"), (1, "halo", "a")], 1),
        ([(2, "smoke", "a"), (1, "halo", "a")], 1),
        ([(2, "smoke", "a"), (1, "halo", "b")], None),
        ([(2, "halo", ""), (1, "halo", "a")], 1),
    ],
)
def test_previous_run_shares_a_case_and_the_suite(tmp_path, earlier, expected_day):
    run = summarize(tmp_path, 9)
    runs = [summarize(tmp_path, day, suite) for day, suite, _ in earlier]
    cases = {run.id: case for run, (_, _, case) in zip(runs, earlier, strict=True) if case}
    previous = find_previous_run(tmp_path, [run, *runs], run, ["a"], make_load(cases))
    expected = [other for other in runs if other.id.startswith(f"202611{expected_day or 0:02}")]
    assert [previous] == (expected or [None])


def test_previous_run_has_ended_before(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "is_alive", lambda folder: True)
    newer, run, running = (summarize(tmp_path, day) for day in (9, 8, 7))
    running = summarize(tmp_path, 7, verdict=None)
    load = make_load({newer.id: "a", run.id: "a", running.id: "a"})
    assert find_previous_run(tmp_path, [newer, run, running], run, ["a"], load) is None


def test_cases_of_indexed_runs_are_not_loaded(tmp_path):
    run, other = (summarize(tmp_path, day) for day in (9, 8))
    other.folder.path.mkdir(parents=True)
    index_ended_run(other.folder, {"schema": REPORT}, [{"id": "a", "status": "passed", "np": 2}])
    assert find_previous_run(tmp_path, [run, other], run, ["a"], make_load({})) == other
    assert find_previous_run(tmp_path, [run, other], run, ["b"], make_load({})) is None


def test_loads_a_limited_number_of_runs(tmp_path):
    runs = [summarize(tmp_path, 1, f"halo{number:04}") for number in range(2 * MAX_LOADED)]
    runs = [replace(run, suite="halo") for run in runs]
    loaded = []

    def load(folder):
        loaded.append(folder.id)
        raise UsageError("unreadable")

    assert find_previous_run(tmp_path, runs, runs[0], ["a"], load) is None
    assert len(loaded) == MAX_LOADED


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"faults": ("slow@halo",)}, "planted fault"),
        ({"machine": ComparedMachine("other", "same")}, "other machine"),
        ({"status": RunStatus.CANCELLED}, "cancelled"),
        ({"status": RunStatus.ERROR}, "error"),
    ],
)
def test_run_under_other_conditions_is_the_last_choice(tmp_path, changes, remark):
    machine = ComparedMachine("this", "same")
    run = replace(summarize(tmp_path, 9), machine=machine)
    odd = replace(summarize(tmp_path, 8), **{"machine": machine, **changes})
    regular = replace(summarize(tmp_path, 7), machine=machine)
    load = make_load({other.id: "a" for other in (run, odd, regular)})
    assert find_previous_run(tmp_path, [run, odd, regular], run, ["a"], load) == regular
    assert find_previous_run(tmp_path, [run, odd], run, ["a"], load) == odd
    assert explain_other_conditions(odd, run) == remark
    assert explain_other_conditions(regular, run) == ""


@pytest.mark.parametrize(
    ("launches", "min_launches", "expected_day"),
    [((1, 5, 5), 5, 7), ((1, 5, 5), 1, 8), ((1, 1, 1), 5, 8), ((0, 1, 5), 1, 7)],
)
def test_run_with_enough_launches_comes_first(tmp_path, launches, min_launches, expected_day):
    run, *runs = (summarize(tmp_path, day) for day in (9, 8, 7, 6))
    ids = [other.id for other in runs]
    load = make_load(dict.fromkeys(ids, "a"), dict(zip(ids, launches, strict=True)))
    previous = find_previous_run(
        tmp_path, [run, *runs], run, ["a"], load, min_launches=min_launches
    )
    assert previous is not None
    assert previous.id.startswith(f"202611{expected_day:02}")


@pytest.mark.parametrize(
    ("cases", "expected_day"),
    [(("a", "abc", "abc"), 7), (("a", "ab", "ac"), 7), (("abcd", "abc", "a"), 8)],
)
def test_rerun_of_some_cases_is_not_preferred(tmp_path, cases, expected_day):
    run, *runs = (summarize(tmp_path, day) for day in (9, 8, 7, 6))
    load = make_load(dict(zip([other.id for other in runs], cases, strict=True)))
    previous = find_previous_run(tmp_path, [run, *runs], run, ["a", "b", "c"], load)
    assert previous is not None
    assert previous.id.startswith(f"202611{expected_day:02}")


def test_run_with_a_fault_is_not_preferred_for_its_launches(tmp_path):
    run, faulted, regular = (summarize(tmp_path, day) for day in (9, 8, 7))
    faulted = replace(faulted, faults=("slow@halo",))
    load = make_load(dict.fromkeys((faulted.id, regular.id), "a"), {faulted.id: 5})
    runs = [run, faulted, regular]
    assert find_previous_run(tmp_path, runs, run, ["a"], load, min_launches=5) == regular
