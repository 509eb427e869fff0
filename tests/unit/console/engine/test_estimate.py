"""Estimates of the duration of a run: from past runs, from work, while running."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spbench.engine import estimate as estimates
from spbench.engine.estimate import (
    estimate_iteration,
    estimate_plan,
    estimate_recorded,
    estimate_work_seconds,
)
from spbench.engine.plan import Request, RunPlan, plan_run
from spbench.engine.remaining_time import estimate_remaining, format_remaining
from spbench.engine.run_estimate import CaseEstimate, EstimateSource, RunEstimate, render_estimate
from spbench.launch.load import Load
from spbench.record.runs import index
from spbench.record.runs.case_durations import hash_work
from spbench.record.runs.folder import RunFolder
from spbench.record.runs.index import PastLaunch
from spbench.record.state import RunState
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.work import Work
from support.sample_events import (
    build_state,
    case_judged,
    console_event,
    describe_case,
    job_start,
    make_complete_run,
    make_started_run,
    rank_event,
    record_run,
    run_resumed,
    run_start,
)

TWO_CASES = """\
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
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine of two cores without other work."""
    monkeypatch.setattr(estimates, "count_cores", lambda: 2)
    monkeypatch.setattr(
        estimates, "read_load", lambda: Load(minute_mean=0.5, num_runnable=0, cores=2)
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def plan_suite(home: Path, text: str = TWO_CASES, **changes: object) -> RunPlan:
    path = home.parent / "suite.yaml"
    path.write_text(text)
    return plan_run(Request(path, home, {}, **changes))


def format_second(second: float) -> str:
    return datetime.fromtimestamp(1_000_000 + second, UTC).isoformat()


def record_durations(
    home: Path, run: RunPlan, seconds: dict[str, float], start: float = 2.0, **machine: object
) -> RunFolder:
    """Record a run of a plan: ``start`` s until its first case, then these durations."""
    folder = record_run(home, make_complete_run(), verdict="passed", exit_code=0, finished=9.0)
    fingerprint = {"id": "abc", "hosts": [socket.gethostname()], "cores": [os.cpu_count()]}
    now = start
    cases = []
    for job in run.jobs:
        for case in job.cases:
            times = {
                "started": format_second(now),
                "finished": format_second(now + seconds[case.id]),
            }
            now += seconds[case.id]
            fields = {"id": case.id, "benchmark": case.benchmark, "np": job.np}
            cases.append(
                fields
                | {"params": dict(case.params), "status": "passed", "launches": [job.number]}
                | times
            )
    report = {
        "schema": "spbench.report/1",
        "run": {"started": format_second(0)},
        "environment": {"fingerprint": fingerprint | machine},
        "cases": cases,
    }
    folder.write_json("report.json", report)
    return folder


def test_estimates_from_work_without_history(home: Path) -> None:
    estimate = estimate_plan(plan_suite(home), home)
    few, many = estimate.cases.values()
    assert few.source is many.source is WORK
    # 34 products of 2 * 8192 ** 3 operations on each of two ranks.
    assert many.seconds == pytest.approx(34 * 2 * 8192**3 / estimates.FLOP_PER_SECOND, rel=0.3)
    assert few.seconds is not None
    assert few.seconds == pytest.approx(
        (estimates.START_SECONDS + estimates.TORCH_SECONDS) / 2, 0.1
    )
    assert estimate.text.endswith("(estimated from the work, within a factor of 5)")


def test_other_work_reduces_the_available_cores(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan_suite(home)
    idle_seconds = estimate_plan(run, home).cases["many"].seconds
    monkeypatch.setattr(
        estimates, "read_load", lambda: Load(minute_mean=6.0, num_runnable=9, cores=2)
    )
    busy_seconds = estimate_plan(run, home).cases["many"].seconds
    assert busy_seconds == pytest.approx(4 * idle_seconds, rel=0.05), (
        "2 ranks and 6 others on 2 cores"
    )


def test_estimates_from_earlier_runs(home: Path, messages) -> None:
    run = plan_suite(home)
    record_durations(home, run, {"few": 1.0, "many": 100.0}, start=4.0)
    estimate = estimate_plan(run, home)
    assert {case.source for case in estimate.cases.values()} == {HISTORY}
    assert estimate.cases["few"].seconds == pytest.approx(1.0 + 2.0), (
        "half of the start belongs to this case"
    )
    assert estimate.seconds == pytest.approx(1.0 + 100.0 + 4.0)
    messages.check(estimate.text)


def test_estimate_is_the_median_of_the_newest_runs(home: Path) -> None:
    run = plan_suite(home)
    for seconds in (50.0, 1.0, 2.0, 9.0):
        record_durations(home, run, {"few": seconds, "many": 10.0})
    few = estimate_plan(run, home).cases["few"].seconds
    assert few == pytest.approx((2.0 + 9.0) / 2 + 1.0)


@pytest.mark.parametrize("machine", [{"hosts": ["elsewhere"]}, {"cores": [4096]}])
def test_ignores_runs_on_other_machines(home: Path, machine: dict[str, object]) -> None:
    run = plan_suite(home)
    record_durations(home, run, {"few": 50.0, "many": 50.0}, **machine)
    assert {case.source for case in estimate_plan(run, home).cases.values()} == {WORK}


def test_ignores_runs_with_an_older_mpi_or_torch(home: Path) -> None:
    run = plan_suite(home)
    first = record_durations(home, run, {"few": 1.0, "many": 10.0})
    second = record_durations(home, run, {"few": 1.0, "many": 30.0})
    newest = max(first.id, second.id)
    for folder in (first, second):
        report = folder.read_json("report.json")
        report["environment"]["fingerprint"]["id"] = "new" if folder.id == newest else "old"
        folder.write_json("report.json", report)
    expected = 30.0 if newest == second.id else 10.0
    assert estimate_plan(run, home).cases["many"].seconds == pytest.approx(expected + 1.0)


def test_unreadable_home_has_no_history(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan_suite(home)
    record_durations(home, run, {"few": 50.0, "many": 50.0})

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spbench.record.runs.index.list_runs", refuse)
    assert {case.source for case in estimate_plan(run, home).cases.values()} == {WORK}


def test_different_parameters_or_faults_have_no_history(home: Path) -> None:
    record_durations(home, plan_suite(home), {"few": 50.0, "many": 50.0})
    changed = plan_suite(home, TWO_CASES.replace("256", "257"))
    sources = [case.source for case in estimate_plan(changed, home).cases.values()]
    assert sources == [WORK, HISTORY]
    faulty = plan_suite(home, inject=("slow@few",))
    sources = [case.source for case in estimate_plan(faulty, home).cases.values()]
    assert sources == [WORK, HISTORY], "the fault is in the first case only"
    faulty = plan_suite(home, inject=("slow",))
    assert {case.source for case in estimate_plan(faulty, home).cases.values()} == {WORK}


def test_program_is_unknown_until_it_has_run(home: Path) -> None:
    run = plan_suite(home, TWO_CASES + PROGRAM)
    estimate = estimate_plan(run, home)
    assert estimate.cases["other"].source is UNKNOWN
    assert estimate.text.endswith(", without 1 case of unknown duration")
    assert estimate.short_text.endswith(" + 1 unknown case")
    record_durations(home, run, {"few": 1.0, "many": 1.0, "other": 3.0})
    assert estimate_plan(run, home).cases["other"].source is HISTORY


def test_failing_work_estimate_of_a_plugin_is_unknown(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(params: object, np: int) -> Work:
        raise KeyError("n")

    gemm = BENCHMARKS["compute.gemm"]
    monkeypatch.setitem(BENCHMARKS, gemm.name, replace(gemm, work=fail, plugin="made-up 1.0"))
    estimate = estimate_plan(plan_suite(home), home)
    assert {case.source for case in estimate.cases.values()} == {UNKNOWN}


def test_only_unknown_cases_have_no_total(messages) -> None:
    estimate = RunEstimate({"a": CaseEstimate(None, UNKNOWN), "b": CaseEstimate(None, UNKNOWN)})
    assert estimate.seconds is None
    messages.check(estimate.text)
    assert estimate.short_text == "unknown duration"


def test_repeats_multiply_work_and_starts(home: Path) -> None:
    once = estimate_plan(plan_suite(home), home).seconds
    text = TWO_CASES.replace("np: 2", "np: 2, repeat: 3")
    assert estimate_plan(plan_suite(home, text), home).seconds == pytest.approx(3 * once)


def test_unknown_repeats_take_their_maximum_time(home: Path) -> None:
    text = TWO_CASES.replace("name: few,", "name: few, until: {interval: 0.02, max_time: 300},")
    few = estimate_plan(plan_suite(home, text), home).cases["few"].seconds
    assert few is not None
    assert few >= 300


def test_work_takes_less_time_with_a_core_per_rank() -> None:
    work = Work(flops=8 * estimates.FLOP_PER_SECOND)
    assert estimate_work_seconds(work, np=8, cores=2) == 4.0
    assert estimate_work_seconds(work, np=8, cores=8) == 1.0


def test_messages_take_longer_if_ranks_share_cores() -> None:
    work = Work(messages=1000)
    assert estimate_work_seconds(work, 8, 2) == pytest.approx(
        16 * estimate_work_seconds(work, 2, 2)
    )


def test_hosts_chosen_by_the_launcher_have_no_history(home: Path) -> None:
    run = plan_suite(home)
    record_durations(home, run, {"few": 50.0, "many": 50.0})
    elsewhere = plan_suite(home)
    allocated = plan_run(Request(elsewhere.request.suite, home, {"SLURM_JOB_ID": "7"}))
    assert {case.source for case in estimate_plan(allocated, home).cases.values()} == {WORK}


def test_estimates_a_run_of_another_process_from_its_folder(home: Path) -> None:
    run = plan_suite(home, keyword="few")
    record_durations(home, plan_suite(home), {"few": 1.0, "many": 100.0})
    request = {"request": run.request.to_record(), "file": str(run.request.suite), "cwd": "/"}
    folder = record_run(home, [run_start()], **request)
    folder.write_text("suite.yaml", TWO_CASES)
    estimate = estimate_recorded(folder, {})
    assert {name: case.source for name, case in estimate.cases.items()} == {"few": HISTORY}
    folder.write_text("suite.yaml", "nothing")
    assert estimate_recorded(folder, {}) == RunEstimate()


def test_formats_an_estimate_as_lines(home: Path, messages) -> None:
    cases = {"a": CaseEstimate(0.02, HISTORY), "b": CaseEstimate(None, UNKNOWN)}
    messages.check(list(render_estimate(RunEstimate(cases))))
    assert list(render_estimate(RunEstimate())) == []


@pytest.mark.parametrize(
    ("seconds", "expected"),
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
def test_formats_estimates_with_two_digits(seconds: float, expected: str) -> None:
    assert CaseEstimate(seconds, WORK).text == expected


# While it runs

FOUR_CASES = RunEstimate({name: CaseEstimate(10.0, HISTORY) for name in "abcd"})


def build_running_state(*ended: tuple[str, float, float]) -> RunState:
    """Return a run that started at 0, with cases that ended: name, start and end in s."""
    state = build_state([run_start(*(describe_case(name) for name in "abcd")) | {"time": 0.0}])
    for name, begin, end in ended:
        state.apply(console_event("case_begin", case=name) | {"time": begin})
        state.apply(case_judged(name) | {"time": end})
    return state


def test_remaining_time_before_the_first_case_is_the_estimate() -> None:
    assert estimate_remaining(build_running_state(), FOUR_CASES, 0.0) == pytest.approx(40.0)
    assert estimate_remaining(build_running_state(), FOUR_CASES, 4.0) == pytest.approx(36.0)


def test_slow_case_lengthens_the_estimate_of_the_others() -> None:
    as_estimated = estimate_remaining(build_running_state(("a", 0.0, 10.0)), FOUR_CASES, 10.0)
    assert as_estimated == pytest.approx(30.0)
    slow = estimate_remaining(build_running_state(("a", 0.0, 30.0)), FOUR_CASES, 30.0)
    assert slow is not None
    assert 60.0 < slow < 90.0
    slower = estimate_remaining(
        build_running_state(("a", 0.0, 30.0), ("b", 30.0, 60.0)), FOUR_CASES, 60.0
    )
    assert slower == pytest.approx(60.0, rel=0.2)
    later = estimate_remaining(
        build_running_state(("a", 0.0, 30.0), ("b", 30.0, 60.0)), FOUR_CASES, 70.0
    )
    assert later == pytest.approx(slower - 10.0)


def test_launches_of_repeated_cases_count_before_the_case_ends() -> None:
    """Cases are interleaved: all end in the last round."""
    names = "abcd"
    cases = [describe_case(name, 1, repeat=5) for name in names]
    state = build_state(make_started_run(*cases, hosts=("node01",)))
    assert state.run is not None
    begin = state.run.started
    for launch in range(3):
        for position, name in enumerate(names):
            time = begin + 2.0 * (4 * launch + position + 1)
            for kind in ("case_start", "case_end"):
                event = rank_event(kind, 0, case=name, repeat=launch)
                state.apply(event | {"time": time})
    assert estimate_remaining(state, FOUR_CASES, begin + 24.0) == pytest.approx(16.0, rel=0.05)


def test_start_of_a_launch_does_not_count_for_its_first_case() -> None:
    """Four cases of 1 s share a launch that takes 6 s to start."""
    estimate = RunEstimate({name: CaseEstimate(2.5, HISTORY, start_seconds=1.5) for name in "abcd"})
    state = build_state([run_start(*(describe_case(name, 1) for name in "abcd")) | {"time": 0.0}])
    state.apply(job_start(*"abcd", np=1) | {"time": 0.1})
    assert estimate_remaining(state, estimate, 5.0) == pytest.approx(5.0)
    state.apply(rank_event("ready", 0, job=1) | {"time": 2.0})  # torch is still being imported
    assert estimate_remaining(state, estimate, 5.0) == pytest.approx(5.0)
    state.apply(rank_event("case_start", 0, case="a") | {"time": 6.0})
    assert estimate_remaining(state, estimate, 6.0) == pytest.approx(4.0)
    state.apply(console_event("case_begin", case="a") | {"time": 6.0})
    assert estimate_remaining(state, estimate, 6.5) == pytest.approx(3.5)
    state.apply(case_judged("a") | {"time": 7.0})
    assert estimate_remaining(state, estimate, 7.0) == pytest.approx(3.0)


def test_remaining_time_covers_the_current_phase() -> None:
    state = build_running_state(("a", 0.0, 10.0), ("b", 10.0, 20.0), ("c", 20.0, 30.0))
    state.apply(rank_event("case_start", 0, case="d") | {"time": 30.0})
    for done, time in ((0, 30.0), (10, 38.0)):
        progress = rank_event("progress", 0, case="d", phase="check", done=done, total=100)
        state.apply(progress | {"time": time})
    assert estimate_remaining(state, FOUR_CASES, 39.0) == pytest.approx(81.0)


def test_overdue_launch_keeps_time_for_later_cases() -> None:
    assert estimate_remaining(build_running_state(), FOUR_CASES, 50.0) == pytest.approx(35.0)
    last = build_running_state(("a", 0.0, 10.0), ("b", 10.0, 20.0), ("c", 20.0, 30.0))
    assert estimate_remaining(last, FOUR_CASES, 60.0) == pytest.approx(3.0)


def test_case_that_never_started_does_not_shorten_the_others() -> None:
    state = build_running_state(("a", 0.0, 10.0))
    state.apply(case_judged("b", "cancelled") | {"time": 10.0})
    assert estimate_remaining(state, FOUR_CASES, 10.0) == pytest.approx(20.0)


def test_ended_run_has_no_remaining_time() -> None:
    ended = build_running_state(*((name, 0.0, 1.0) for name in "abcd"))
    assert estimate_remaining(ended, FOUR_CASES, 2.0) == 0.0
    assert estimate_remaining(RunState(), FOUR_CASES, 2.0) is None


def test_unknown_case_makes_the_remaining_time_unknown() -> None:
    estimate = RunEstimate({**FOUR_CASES.cases, "a": CaseEstimate(None, UNKNOWN)})
    assert estimate_remaining(build_running_state(), estimate, 1.0) is None
    assert estimate_remaining(build_running_state(("a", 0.0, 5.0)), estimate, 5.0) is not None


def test_resumed_run_counts_from_its_resumption() -> None:
    state = build_running_state(("a", 0.0, 10.0))
    state.apply(run_resumed("b", "c", "d") | {"time": 1000.0})
    assert estimate_remaining(state, FOUR_CASES, 1000.0) == pytest.approx(30.0)
    state.apply(console_event("case_begin", case="b") | {"time": 1000.0})
    state.apply(case_judged("b") | {"time": 1010.0})
    assert estimate_remaining(state, FOUR_CASES, 1010.0) == pytest.approx(20.0)


def test_formats_the_remaining_time(messages) -> None:
    assert format_remaining(None) == ""
    messages.check(format_remaining(41.2))


def test_own_duration_is_the_same_next_to_other_cases(home: Path) -> None:
    first_case = TWO_CASES[: TWO_CASES.index("  - {name: many")]
    estimates_alone = estimate_plan(plan_suite(home, first_case), home, consider_load=False).cases
    estimates_of_both = estimate_plan(plan_suite(home), home, consider_load=False).cases
    assert estimates_alone["few"].seconds != estimates_of_both["few"].seconds
    assert estimates_alone["few"].own_seconds == pytest.approx(estimates_of_both["few"].own_seconds)
    assert estimates_alone["few"].own_text == estimates_of_both["few"].own_text


def test_estimate_of_an_idle_machine_ignores_the_load(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan_suite(home)
    idle_seconds = estimate_plan(run, home, consider_load=False).seconds
    monkeypatch.setattr(
        estimates, "read_load", lambda: Load(minute_mean=6.0, num_runnable=9, cores=2)
    )
    assert estimate_plan(run, home, consider_load=False).seconds == idle_seconds
    assert estimate_plan(run, home).seconds > idle_seconds


def test_own_text_has_the_sign_of_its_source() -> None:
    cases = {"a": CaseEstimate(5.0, WORK, 1.0), "b": CaseEstimate(None, UNKNOWN)}
    assert cases["a"].own_text == "~4 s"
    assert cases["b"].own_text == "unknown"
    assert RunEstimate(cases).own_text == "~4 s + 1 unknown"


def test_estimates_an_iteration_from_its_last_run_or_from_the_work(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_suite(home)
    few, many = plan.jobs[0].cases
    seconds = estimate_iteration(plan, many)
    assert seconds is not None
    # Two ranks on two cores.
    assert seconds == pytest.approx(2 * 2 * 8192**3 / (2 * estimates.FLOP_PER_SECOND), rel=0.8)
    work = hash_work(few.benchmark, few.entry.version, 2, few.params)
    launches = [
        PastLaunch("a", 1, 30.0, None, work),
        PastLaunch("b", 1, 40.0, None, work),
        PastLaunch("c", 1, 50.0, None, "other work"),
    ]
    monkeypatch.setattr(index, "find_past_launches", lambda home, case, metric: launches)
    assert estimate_iteration(plan, few) == 0.04


def test_iteration_of_a_program_is_unknown(home: Path) -> None:
    plan = plan_suite(home, TWO_CASES + PROGRAM)
    (program,) = plan.jobs[-1].cases
    assert estimate_iteration(plan, program) is None
