"""Plans for the remaining and for the failed cases of a recorded run."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from spbench.engine.plan import Request, plan_run
from spbench.engine.resume import plan_failed, plan_resumed, reject_overtaken
from spbench.errors import NothingSelected, UsageError
from spbench.launch.choice import LaunchChoice
from support.sample_events import (
    build_state,
    case_judged,
    describe_case,
    job_start,
    record_run,
    run_end,
    run_start,
)

SUITE = """\
schema: spbench.suite/1
name: made-up
cases:
  - {name: a, benchmark: link.pingpong, np: 2, params: {iterations: 5}}
  - {name: b, benchmark: link.pingpong, np: 2, repeat: 2}
  - {name: c, benchmark: link.pingpong, np: 4}
"""
CASES = [describe_case("a"), describe_case("b", repeat=2), describe_case("c", np=4)]
ENDED = {"verdict": "cancelled", "exit_code": 130}


@pytest.fixture
def base_request(tmp_path):
    return Request(suite=tmp_path / "other.yaml", home=tmp_path / "home", environ={})


@pytest.fixture
def record_interrupted(base_request, tmp_path):
    """Return a function that records a run of three cases with a killed console."""

    def record(*events, report=False, **changes):
        file = tmp_path / "made-up.yaml"
        file.write_text(SUITE)
        request = Request(suite=file, home=tmp_path, environ={}, overrides=("iterations=9",))
        console = {"pid": 0, "host": socket.gethostname(), "started": 1000.0, "since_boot": 999.0}
        location = {"file": file.name, "cwd": str(tmp_path), "console": console}
        fields = location | {"request": request.to_record()} | changes
        folder = record_run(base_request.home, events, **fields)
        folder.write_text("suite.yaml", SUITE)
        if report:
            folder.write_json("report.json", {})
        return folder

    return record


def started_run(*judgements):
    return [run_start(*CASES), job_start("a", "b"), *judgements]


def list_jobs(planned):
    return [(job.np, [case.id for case in job.cases]) for job in planned.jobs]


def test_resumes_cases_without_a_verdict(record_interrupted, base_request):
    folder = record_interrupted(*started_run(case_judged("a", "passed")))
    resumed = plan_resumed(base_request, "last")
    assert resumed.resumed == folder
    assert list_jobs(resumed) == [(2, ["b"]), (4, ["c"])]
    assert resumed.suite.text == SUITE


@pytest.mark.timeout(10)
def test_rejects_a_pipe_instead_of_the_suite_at_once(record_interrupted, base_request):
    suite = record_interrupted(*started_run()).path / "suite.yaml"
    suite.unlink()
    os.mkfifo(suite)
    with pytest.raises(UsageError, match=r"suite.yaml or run.json is damaged .*it is a pipe"):
        plan_resumed(base_request, "last")


def test_resumes_cancelled_and_skipped_but_not_failed_cases(record_interrupted, base_request):
    ends = [case_judged("a", "failed"), case_judged("b", "cancelled"), case_judged("c", "skipped")]
    record_interrupted(*started_run(*ends), run_end("cancelled", 130), report=True, **ENDED)
    assert list_jobs(plan_resumed(base_request, "last")) == [(2, ["b"]), (4, ["c"])]


def test_resume_applies_the_overrides_again(record_interrupted, base_request):
    record_interrupted(*started_run())
    [(case, *_), *_] = [job.cases for job in plan_resumed(base_request, "last").jobs]
    assert case.params["iterations"] == 9


def test_run_without_events_starts_from_the_beginning(record_interrupted, base_request):
    folder = record_interrupted()
    resumed = plan_resumed(base_request, folder.id)
    assert list_jobs(resumed) == [(2, ["a", "b"]), (4, ["c"])]


def test_run_without_only_its_report_has_no_jobs_left(record_interrupted, base_request):
    record_interrupted(*started_run(*(case_judged(name) for name in "abc")))
    assert plan_resumed(base_request, "last").jobs == ()


def test_rejects_resuming_a_complete_run(record_interrupted, base_request):
    ends = [case_judged(name) for name in "abc"]
    record_interrupted(*started_run(*ends), run_end(), report=True, verdict="passed")
    with pytest.raises(NothingSelected, match="went to its end: its 3 cases have their verdicts"):
        plan_resumed(base_request, "last")


def test_resume_keeps_the_number_of_ranks(record_interrupted, base_request):
    record_interrupted(run_start(describe_case("a", np=3), *CASES[1:]))
    assert list_jobs(plan_resumed(base_request, "last"))[0] == (3, ["a"])


@pytest.mark.parametrize("planner", [plan_resumed, plan_failed])
def test_rejects_a_running_run(record_interrupted, base_request, planner, monkeypatch):
    monkeypatch.setattr("spbench.record.runs.folder.find_process_start", lambda pid: 999.0)
    record_interrupted(*started_run(case_judged("a", "failed")))
    with pytest.raises(UsageError, match="is still running; wait for its end, or cancel it"):
        planner(base_request, "last")


@pytest.mark.parametrize("planner", [plan_resumed, plan_failed])
def test_rejects_a_run_that_may_be_running_on_another_host(
    record_interrupted, base_request, planner
):
    record_interrupted(*started_run(), console={"pid": 1, "host": "node07", "started": 1000.0})
    with pytest.raises(UsageError, match="is still running on node07, so far as can be seen"):
        planner(base_request, "last")


def test_rejects_a_run_without_a_recorded_request(record_interrupted, base_request):
    record_interrupted(*started_run(), request=None)
    with pytest.raises(UsageError, match="does not say what it was asked for"):
        plan_resumed(base_request, "last")


def test_rejects_a_run_that_was_resumed_meanwhile(record_interrupted, base_request):
    folder = record_interrupted(*started_run(case_judged("a")))
    planned = plan_resumed(base_request, "last")
    reject_overtaken(folder, planned, folder.replay())
    state = build_state(started_run(case_judged("a"), case_judged("b")))
    with pytest.raises(UsageError, match="was resumed by another spbench meanwhile"):
        reject_overtaken(folder, planned, state)


@pytest.mark.parametrize(("option", "retries"), [(0, 2), (5, 5)])
def test_retries_are_those_of_the_run_unless_set(record_interrupted, base_request, option, retries):
    request = Request(suite=Path("made-up.yaml"), home=Path(), environ={}, retries=2)
    record_interrupted(*started_run(), request=request.to_record())
    assert plan_resumed(replace(base_request, retries=option), "last").request.retries == retries


@pytest.mark.parametrize("request_json", [{}, {"overrides": 1}, {"chosen": {"rocks": "1"}}])
def test_rejects_a_damaged_request(record_interrupted, base_request, request_json):
    record_interrupted(*started_run(), request=request_json)
    with pytest.raises(UsageError, match=r"its suite.yaml or run.json is damaged"):
        plan_resumed(base_request, "last")


def test_reports_a_case_that_the_suite_no_longer_has(record_interrupted, base_request):
    record_interrupted(run_start(*CASES, describe_case("d")))
    with pytest.raises(UsageError, match="has the case d, which its suite no longer gives"):
        plan_resumed(base_request, "last")


def test_resume_keeps_the_hosts_unless_others_are_chosen(
    record_interrupted, base_request, tmp_path
):
    hosts = tmp_path / "two.hosts"
    hosts.write_text("localhost:4\n")
    chosen = LaunchChoice(hostfile="two.hosts")
    request = Request(suite=tmp_path / "x", home=tmp_path, environ={}, launch_choice=chosen)
    record_interrupted(*started_run(), request=request.to_record())
    assert plan_resumed(base_request, "last").request.launch_choice.hostfile == hosts
    changed = Request(
        **request_fields(base_request) | {"launch_choice": LaunchChoice(hosts="localhost:8")}
    )
    assert plan_resumed(changed, "last").request.launch_choice == changed.launch_choice


def test_resume_keeps_the_oversubscribe_option(record_interrupted, base_request, tmp_path):
    chosen = LaunchChoice(hosts="localhost:8", oversubscribe=True)
    request = Request(suite=tmp_path / "x", home=tmp_path, environ={}, launch_choice=chosen)
    record_interrupted(*started_run(), request=request.to_record())
    plan = plan_resumed(base_request, "last")
    assert plan.request.launch_choice == chosen
    assert {job.settings.oversubscribe for job in plan.jobs} == {"force"}


def test_oversubscribe_option_keeps_the_recorded_hosts(record_interrupted, base_request, tmp_path):
    chosen = LaunchChoice(hosts="localhost:8")
    request = Request(suite=tmp_path / "x", home=tmp_path, environ={}, launch_choice=chosen)
    record_interrupted(*started_run(), request=request.to_record())
    changed = Request(
        **request_fields(base_request) | {"launch_choice": LaunchChoice(oversubscribe=True)}
    )
    expected = LaunchChoice(hosts="localhost:8", oversubscribe=True)
    assert plan_resumed(changed, "last").request.launch_choice == expected


def request_fields(request):
    return {name: getattr(request, name) for name in Request.__dataclass_fields__}


def test_failed_and_cancelled_cases_run_again_as_a_new_run(record_interrupted, base_request):
    ends = [case_judged("a", "failed"), case_judged("b", "error"), case_judged("c", "cancelled")]
    record_interrupted(*started_run(*ends), run_end("error", 4), report=True, verdict="error")
    plan = plan_failed(base_request, "last")
    assert plan.resumed is None
    assert list_jobs(plan) == [(2, ["a", "b"]), (4, ["c"])]
    assert plan.request.to_record()["cases"] == ["a", "b", "c"]
    assert plan.request.to_record()["overrides"] == ["iterations=9"]


def test_failed_cases_run_again_with_another_number_of_launches(record_interrupted, base_request):
    record_interrupted(*started_run(case_judged("a", "failed")), run_end("failed", 1))
    plan = plan_failed(replace(base_request, overrides=("repeat=4",)), "last")
    assert plan.request.overrides == ("iterations=9", "repeat=4")
    assert {case.repeat for job in plan.jobs for case in job.cases} == {4}
    changed_plan = plan_failed(replace(base_request, overrides=("iterations=7",)), "last")
    assert changed_plan.request.overrides == ("iterations=7",)


@pytest.mark.parametrize("with_faults", [True, False])
def test_failed_cases_run_again_with_or_without_faults(
    record_interrupted, base_request, tmp_path, with_faults
):
    ends = [case_judged("a", "failed"), case_judged("b", "error"), case_judged("c")]
    request = Request(suite=tmp_path / "x", home=tmp_path, environ={}, inject=("kill@a",))
    record_interrupted(*started_run(*ends), run_end("error", 4), request=request.to_record())
    plan = plan_failed(base_request, "last", with_faults=with_faults)
    assert plan.request.inject == (("kill@a",) if with_faults else ())
    faults = {case.id: case.inject for job in plan.jobs for case in job.cases}
    assert faults == {"a": "kill" if with_faults else None, "b": None}


@pytest.mark.parametrize("with_cancelled", [True, False])
def test_failed_cases_run_again_with_or_without_the_cancelled(
    record_interrupted, base_request, with_cancelled
):
    ends = [case_judged("a", "failed"), case_judged("b", "cancelled"), case_judged("c")]
    record_interrupted(*started_run(*ends), run_end("cancelled", 130))
    plan = plan_failed(base_request, "last", with_cancelled=with_cancelled)
    cases = [case.id for job in plan.jobs for case in job.cases]
    assert cases == (["a", "b"] if with_cancelled else ["a"])


def test_rejects_a_run_with_only_cancelled_cases_if_they_are_left_out(
    record_interrupted, base_request
):
    ends = [case_judged(name, "cancelled") for name in "abc"]
    record_interrupted(*started_run(*ends), run_end("cancelled", 130))
    with pytest.raises(NothingSelected):
        plan_failed(base_request, "last", with_cancelled=False)


def test_failed_cases_run_again_with_cases_they_refer_to(record_interrupted, base_request):
    expect = "expect: {time_ms: {max: 2 * case(a).time_ms}}"
    suite = SUITE.replace("repeat: 2}", f"repeat: 2, {expect}}}")
    assert suite != SUITE
    ends = [case_judged("a"), case_judged("b", "failed"), case_judged("c")]
    folder = record_interrupted(
        *started_run(*ends), run_end("failed", 1), report=True, verdict="failed"
    )
    folder.write_text("suite.yaml", suite)
    plan = plan_failed(base_request, "last")
    assert list_jobs(plan) == [(2, ["a", "b"])]
    assert set(plan.request.cases) == {"a", "b"}


def test_rejects_a_run_without_failed_cases(record_interrupted, base_request):
    folder = record_interrupted(*started_run(*(case_judged(name) for name in "abc")))
    with pytest.raises(NothingSelected, match=f"no case of run {folder.id} failed"):
        plan_failed(base_request, "last")


def test_record_of_a_plain_request_has_defaults(tmp_path):
    file = tmp_path / "made-up.yaml"
    file.write_text(SUITE)
    planned = plan_run(Request(suite=file, home=tmp_path, environ={}, cases=("a",)))
    assert planned.resumed is None
    unset = {"overrides": [], "keyword": None, "inject": [], "chosen": {}}
    retry_defaults = {"retries": 0, "fail_on_flaky": False}
    assert planned.request.to_record() == {**unset, **retry_defaults, "cases": ["a"]}


@pytest.mark.parametrize(
    ("recorded", "injected"),
    [(None, [None, None]), ("kill@a", ["kill", None]), (["kill@a", "raise@b"], ["kill", "raise"])],
)
def test_resume_injects_the_recorded_faults_again(
    record_interrupted, base_request, recorded, injected
):
    folder = record_interrupted(*started_run(case_judged("c")))
    run = folder.read_json("run.json")
    folder.write_json("run.json", run | {"request": run["request"] | {"inject": recorded}})
    resumed = plan_resumed(base_request, "last")
    cases = {case.id: case.inject for job in resumed.jobs for case in job.cases}
    assert [cases["a"], cases["b"]] == injected


def test_shipped_suite_keeps_its_name(record_interrupted, base_request):
    record_interrupted(*started_run(), file="shipped:made-up")
    assert plan_resumed(base_request, "last").request.suite == Path("shipped:made-up")
