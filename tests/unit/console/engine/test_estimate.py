"""Estimates of a run's duration: from earlier runs, from the work, and while it runs."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spbench.engine import estimate as estimates
from spbench.engine.estimate import (
    CaseEstimate,
    EstimateSource,
    RunEstimate,
    estimate_lines,
    estimate_plan,
    estimate_recorded,
    work_seconds,
)
from spbench.engine.plan import Request, RunPlan, plan_run
from spbench.engine.remaining_time import estimate_remaining, format_remaining
from spbench.launch.load import Load
from spbench.record.runs.folder import RunFolder
from spbench.record.state import RunState
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.work import Work
from unit.events import (
    console_event,
    described,
    job_start,
    judged,
    rank_event,
    recorded,
    resumed,
    run_start,
    started,
    state_of,
    whole_run,
)

TWO = """\
schema: spbench.suite/1
name: made-up
cases:
  - {name: few, benchmark: compute.gemm, np: 2, params: {n: 256}}
  - {name: many, benchmark: compute.gemm, np: 2, params: {n: 8192}}
"""
PROGRAM = "  - {name: other, benchmark: program.run, np: 1, params: {argv: [uname]}}\n"
HISTORY = EstimateSource.HISTORY
WORK = EstimateSource.WORK
UNKNOWN = EstimateSource.UNKNOWN


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cores without other work."""
    monkeypatch.setattr(estimates, "count_cores", lambda: 2)
    monkeypatch.setattr(estimates, "read_load", lambda: Load(minute=0.5, now=0, cores=2))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def planned(home: Path, text: str = TWO, **changes: object) -> RunPlan:
    path = home.parent / "suite.yaml"
    path.write_text(text)
    return plan_run(Request(path, home, {}, **changes))


def stamp(second: float) -> str:
    return datetime.fromtimestamp(1_000_000 + second, UTC).isoformat()


def record_run(
    home: Path, run: RunPlan, seconds: dict[str, float], start: float = 2.0, **machine: object
) -> RunFolder:
    """Record a run of a plan: its cases took these seconds, after the start of their one job."""
    folder = recorded(home, whole_run(), verdict="passed", exit_code=0, finished=9.0)
    own = {"id": "abc", "hosts": [socket.gethostname()], "cores": [os.cpu_count()]}
    now = start
    cases = []
    for job in run.jobs:
        for case in job.cases:
            times = {"started": stamp(now), "finished": stamp(now + seconds[case.id])}
            now += seconds[case.id]
            same = {"id": case.id, "benchmark": case.benchmark, "np": job.np}
            cases.append(
                same
                | {"params": dict(case.params), "status": "passed", "launches": [job.number]}
                | times
            )
    report = {
        "schema": "spbench.report/1",
        "run": {"started": stamp(0)},
        "environment": {"fingerprint": own | machine},
        "cases": cases,
    }
    folder.write_json("report.json", report)
    return folder


def test_without_history_the_work_decides(home: Path) -> None:
    estimate = estimate_plan(planned(home), home)
    few, many = estimate.cases.values()
    assert few.source is many.source is WORK
    # 34 products of 2 * 8192 ** 3 operations on each of two ranks.
    assert many.seconds == pytest.approx(34 * 2 * 8192**3 / estimates.FLOPS, rel=0.3)
    assert few.seconds is not None
    assert few.seconds == pytest.approx(
        (estimates.START_SECONDS + estimates.TORCH_SECONDS) / 2, 0.1
    )
    assert estimate.text.endswith("(estimated from the work, within a factor of 5)")


def test_other_work_on_the_machine_takes_its_share_of_the_cores(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = planned(home)
    alone = estimate_plan(run, home).cases["many"].seconds
    monkeypatch.setattr(estimates, "read_load", lambda: Load(minute=6.0, now=9, cores=2))
    beside = estimate_plan(run, home).cases["many"].seconds
    assert beside == pytest.approx(4 * alone, rel=0.05), "2 ranks and 6 others on 2 cores"


def test_earlier_runs_decide_for_the_cases_that_they_had(home: Path) -> None:
    run = planned(home)
    record_run(home, run, {"few": 1.0, "many": 100.0}, start=4.0)
    estimate = estimate_plan(run, home)
    assert {case.source for case in estimate.cases.values()} == {HISTORY}
    assert estimate.cases["few"].seconds == pytest.approx(1.0 + 2.0), "half of the start is its own"
    assert estimate.seconds == pytest.approx(1.0 + 100.0 + 4.0)
    assert estimate.text == "about 1 min 40 s (from earlier runs)"


def test_the_median_of_the_newest_runs_counts(home: Path) -> None:
    run = planned(home)
    for seconds in (50.0, 1.0, 2.0, 9.0):
        record_run(home, run, {"few": seconds, "many": 10.0})
    few = estimate_plan(run, home).cases["few"].seconds
    assert few == pytest.approx((2.0 + 9.0) / 2 + 1.0)


@pytest.mark.parametrize("machine", [{"hosts": ["elsewhere"]}, {"cores": [4096]}])
def test_runs_on_other_machines_say_nothing(home: Path, machine: dict[str, object]) -> None:
    run = planned(home)
    record_run(home, run, {"few": 50.0, "many": 50.0}, **machine)
    assert {case.source for case in estimate_plan(run, home).cases.values()} == {WORK}


def test_a_newer_mpi_or_torch_makes_the_runs_before_it_useless(home: Path) -> None:
    run = planned(home)
    first = record_run(home, run, {"few": 1.0, "many": 10.0})
    second = record_run(home, run, {"few": 1.0, "many": 30.0})
    newest = max(first.id, second.id)
    for folder in (first, second):
        report = folder.read_json("report.json")
        report["environment"]["fingerprint"]["id"] = "new" if folder.id == newest else "old"
        folder.write_json("report.json", report)
    expected = 30.0 if newest == second.id else 10.0
    assert estimate_plan(run, home).cases["many"].seconds == pytest.approx(expected + 1.0)


def test_a_home_that_cannot_be_read_is_one_without_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = planned(home)
    record_run(home, run, {"few": 50.0, "many": 50.0})

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spbench.record.runs.index.list_runs", refuse)
    assert {case.source for case in estimate_plan(run, home).cases.values()} == {WORK}


def test_other_parameters_and_planted_faults_are_other_cases(home: Path) -> None:
    record_run(home, planned(home), {"few": 50.0, "many": 50.0})
    changed = planned(home, TWO.replace("256", "257"))
    sources = [case.source for case in estimate_plan(changed, home).cases.values()]
    assert sources == [WORK, HISTORY]
    faulty = planned(home, inject=("slow@few",))
    sources = [case.source for case in estimate_plan(faulty, home).cases.values()]
    assert sources == [WORK, HISTORY], "the fault is in the first case only"
    faulty = planned(home, inject=("slow",))
    assert {case.source for case in estimate_plan(faulty, home).cases.values()} == {WORK}


def test_programs_are_unknown_until_they_have_run(home: Path) -> None:
    run = planned(home, TWO + PROGRAM)
    estimate = estimate_plan(run, home)
    assert estimate.cases["other"].source is UNKNOWN
    assert estimate.text.endswith(", without 1 case of unknown duration")
    assert estimate.short_text.endswith(" + 1 case")
    record_run(home, run, {"few": 1.0, "many": 1.0, "other": 3.0})
    assert estimate_plan(run, home).cases["other"].source is HISTORY


def test_an_estimate_of_a_plugin_that_fails_is_unknown(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(params: object, np: int) -> Work:
        raise KeyError("n")

    gemm = BENCHMARKS["compute.gemm"]
    monkeypatch.setitem(BENCHMARKS, gemm.name, replace(gemm, work=fail, plugin="made-up 1.0"))
    estimate = estimate_plan(planned(home), home)
    assert {case.source for case in estimate.cases.values()} == {UNKNOWN}


def test_only_unknown_cases_have_no_sum() -> None:
    estimate = RunEstimate({"a": CaseEstimate(None, UNKNOWN), "b": CaseEstimate(None, UNKNOWN)})
    assert estimate.seconds is None
    assert estimate.text == "2 cases of unknown duration"
    assert estimate.short_text == "unknown duration"


def test_repeats_multiply_work_and_starts(home: Path) -> None:
    once = estimate_plan(planned(home), home).seconds
    text = TWO.replace("np: 2", "np: 2, repeat: 3")
    assert estimate_plan(planned(home, text), home).seconds == pytest.approx(3 * once)


def test_repeats_until_an_interval_take_their_most_time_if_nothing_is_known(home: Path) -> None:
    text = TWO.replace("name: few,", "name: few, until: {interval: 0.02, max_time: 300},")
    few = estimate_plan(planned(home, text), home).cases["few"].seconds
    assert few is not None
    assert few >= 300


def test_other_hosts_have_a_core_for_each_rank() -> None:
    work = Work(flops=8 * estimates.FLOPS)
    assert work_seconds(work, np=8, cores=2) == 4.0
    assert work_seconds(work, np=8, cores=8) == 1.0


def test_ranks_that_share_a_core_wait_for_each_other() -> None:
    work = Work(messages=1000)
    assert work_seconds(work, 8, 2) == pytest.approx(16 * work_seconds(work, 2, 2))


def test_hosts_that_the_launcher_chooses_have_no_history(home: Path) -> None:
    run = planned(home)
    record_run(home, run, {"few": 50.0, "many": 50.0})
    elsewhere = planned(home)
    allocated = plan_run(Request(elsewhere.request.suite, home, {"SLURM_JOB_ID": "7"}))
    assert {case.source for case in estimate_plan(allocated, home).cases.values()} == {WORK}


def test_a_run_of_another_process_is_estimated_from_its_folder(home: Path) -> None:
    run = planned(home, keyword="few")
    record_run(home, planned(home), {"few": 1.0, "many": 100.0})
    request = {"request": run.request.to_record(), "file": str(run.request.suite), "cwd": "/"}
    folder = recorded(home, [run_start()], **request)
    folder.write_text("suite.yaml", TWO)
    estimate = estimate_recorded(folder, {})
    assert {name: case.source for name, case in estimate.cases.items()} == {"few": HISTORY}
    folder.write_text("suite.yaml", "nothing")
    assert estimate_recorded(folder, {}) == RunEstimate()


def test_lines_for_a_script(home: Path) -> None:
    cases = {"a": CaseEstimate(0.02, HISTORY), "b": CaseEstimate(None, UNKNOWN)}
    assert list(estimate_lines(RunEstimate(cases))) == [
        "duration: about 0.1 s (from earlier runs), without 1 case of unknown duration",
        "  a: about 0.1 s",
        "  b: unknown duration",
    ]
    assert list(estimate_lines(RunEstimate())) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "about 0.1 s"),
        (0.34, "about 0.3 s"),
        (7.04, "about 7 s"),
        (7.36, "about 7.4 s"),
        (43.4, "about 43 s"),
        (131.0, "about 2 min 10 s"),
        (1141.0, "about 19 min"),
        (7300.0, "about 2 h 02 min"),
    ],
)
def test_estimates_have_two_digits(seconds: float, text: str) -> None:
    assert CaseEstimate(seconds, WORK).text == text


# While it runs

FOUR = RunEstimate({name: CaseEstimate(10.0, HISTORY) for name in "abcd"})


def running(*ended: tuple[str, float, float]) -> RunState:
    """A run that began at 0; these cases have ended, each with its begin and end."""
    state = state_of([run_start(*(described(name) for name in "abcd")) | {"time": 0.0}])
    for name, begin, end in ended:
        state.apply(console_event("case_begin", case=name) | {"time": begin})
        state.apply(judged(name) | {"time": end})
    return state


def test_what_remains_before_the_first_case_is_the_estimate() -> None:
    assert estimate_remaining(running(), FOUR, 0.0) == pytest.approx(40.0)
    assert estimate_remaining(running(), FOUR, 4.0) == pytest.approx(36.0)


def test_a_case_that_took_longer_makes_the_others_longer() -> None:
    as_estimated = estimate_remaining(running(("a", 0.0, 10.0)), FOUR, 10.0)
    assert as_estimated == pytest.approx(30.0)
    slow = estimate_remaining(running(("a", 0.0, 30.0)), FOUR, 30.0)
    assert slow is not None
    assert 60.0 < slow < 90.0
    slower = estimate_remaining(running(("a", 0.0, 30.0), ("b", 30.0, 60.0)), FOUR, 60.0)
    assert slower == pytest.approx(60.0, rel=0.2)
    later = estimate_remaining(running(("a", 0.0, 30.0), ("b", 30.0, 60.0)), FOUR, 70.0)
    assert later == pytest.approx(slower - 10.0)


def test_launches_of_repeated_cases_count_before_their_case_ends() -> None:
    """Cases take turns, so that none has ended before the last round."""
    names = "abcd"
    cases = [described(name, 1, repeat=5) for name in names]
    state = state_of(started(*cases, hosts=("node01",)))
    assert state.run is not None
    begin = state.run.started
    for launch in range(3):
        for at, name in enumerate(names):
            ended = begin + 2.0 * (4 * launch + at + 1)
            for kind in ("case_start", "case_end"):
                event = rank_event(kind, 0, case=name, repeat=launch)
                state.apply(event | {"time": ended})
    assert estimate_remaining(state, FOUR, begin + 24.0) == pytest.approx(16.0, rel=0.05)


def test_the_start_of_a_launch_does_not_make_its_first_case_slow() -> None:
    """Four cases of 1 s share a launch whose start takes 6 s."""
    estimate = RunEstimate({name: CaseEstimate(2.5, HISTORY, start=1.5) for name in "abcd"})
    state = state_of([run_start(*(described(name, 1) for name in "abcd")) | {"time": 0.0}])
    state.apply(job_start(*"abcd", np=1) | {"time": 0.1})
    assert estimate_remaining(state, estimate, 5.0) == pytest.approx(5.0)
    state.apply(rank_event("ready", 0, job=1) | {"time": 2.0})  # torch is not imported yet
    assert estimate_remaining(state, estimate, 5.0) == pytest.approx(5.0)
    state.apply(rank_event("case_start", 0, case="a") | {"time": 6.0})
    assert estimate_remaining(state, estimate, 6.0) == pytest.approx(4.0)
    state.apply(console_event("case_begin", case="a") | {"time": 6.0})
    assert estimate_remaining(state, estimate, 6.5) == pytest.approx(3.5)
    state.apply(judged("a") | {"time": 7.0})
    assert estimate_remaining(state, estimate, 7.0) == pytest.approx(3.0)


def test_what_remains_is_at_least_what_the_phase_of_a_case_takes() -> None:
    state = running(("a", 0.0, 10.0), ("b", 10.0, 20.0), ("c", 20.0, 30.0))
    state.apply(rank_event("case_start", 0, case="d") | {"time": 30.0})
    for done, time in ((0, 30.0), (10, 38.0)):
        progress = rank_event("progress", 0, case="d", phase="check", done=done, total=100)
        state.apply(progress | {"time": time})
    assert estimate_remaining(state, FOUR, 39.0) == pytest.approx(81.0)


def test_a_launch_that_takes_longer_than_estimated_leaves_time_for_those_after_it() -> None:
    assert estimate_remaining(running(), FOUR, 50.0) == pytest.approx(35.0)
    last = running(("a", 0.0, 10.0), ("b", 10.0, 20.0), ("c", 20.0, 30.0))
    assert estimate_remaining(last, FOUR, 60.0) == pytest.approx(3.0)


def test_a_case_that_never_started_does_not_make_the_others_shorter() -> None:
    state = running(("a", 0.0, 10.0))
    state.apply(judged("b", "cancelled") | {"time": 10.0})
    assert estimate_remaining(state, FOUR, 10.0) == pytest.approx(20.0)


def test_nothing_remains_of_a_run_that_has_ended() -> None:
    ended = running(*((name, 0.0, 1.0) for name in "abcd"))
    assert estimate_remaining(ended, FOUR, 2.0) == 0.0
    assert estimate_remaining(RunState(), FOUR, 2.0) is None


def test_an_unknown_case_leaves_the_rest_unknown_until_it_has_ended() -> None:
    estimate = RunEstimate({**FOUR.cases, "a": CaseEstimate(None, UNKNOWN)})
    assert estimate_remaining(running(), estimate, 1.0) is None
    assert estimate_remaining(running(("a", 0.0, 5.0)), estimate, 5.0) is not None


def test_a_resumed_run_counts_from_its_resumption() -> None:
    state = running(("a", 0.0, 10.0))
    state.apply(resumed("b", "c", "d") | {"time": 1000.0})
    assert estimate_remaining(state, FOUR, 1000.0) == pytest.approx(30.0)
    state.apply(console_event("case_begin", case="b") | {"time": 1000.0})
    state.apply(judged("b") | {"time": 1010.0})
    assert estimate_remaining(state, FOUR, 1010.0) == pytest.approx(20.0)


def test_remaining_time_for_people() -> None:
    assert format_remaining(None) == ""
    assert format_remaining(41.2) == "about 41 s left"
