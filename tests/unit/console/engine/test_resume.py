"""Plans of what a recorded run lacks, and of what failed in one."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from spbench.engine.plan import Request, plan_run
from spbench.engine.resume import plan_failed, plan_resumed, reject_overtaken
from spbench.errors import NothingSelected, UsageError
from spbench.launch.choice import LaunchChoice
from unit.events import described, job_start, judged, recorded, run_end, run_start, state_of

SUITE = """\
schema: spbench.suite/1
name: made-up
cases:
  - {name: a, benchmark: link.pingpong, np: 2, params: {iterations: 5}}
  - {name: b, benchmark: link.pingpong, np: 2, repeat: 2}
  - {name: c, benchmark: link.pingpong, np: 4}
"""
CASES = [described("a"), described("b", repeat=2), described("c", np=4)]
ENDED = {"verdict": "cancelled", "exit_code": 130}


@pytest.fixture
def request_(tmp_path):
    return Request(suite=tmp_path / "other.yaml", home=tmp_path / "home", environ={})


@pytest.fixture
def cut_short(request_, tmp_path):
    """Record a run of three cases whose console was killed after these events."""

    def record(*events, report=False, **changes):
        file = tmp_path / "made-up.yaml"
        file.write_text(SUITE)
        asked = Request(suite=file, home=tmp_path, environ={}, overrides=("iterations=9",))
        console = {"pid": 0, "host": socket.gethostname(), "started": 1000.0, "since_boot": 999.0}
        about = {"file": file.name, "cwd": str(tmp_path), "console": console}
        told = about | {"request": asked.to_record()} | changes
        folder = recorded(request_.home, events, **told)
        folder.write_text("suite.yaml", SUITE)
        if report:
            folder.write_json("report.json", {})
        return folder

    return record


def began(*judgements):
    return [run_start(*CASES), job_start("a", "b"), *judgements]


def jobs_of(planned):
    return [(job.np, [case.id for case in job.cases]) for job in planned.jobs]


def test_cases_without_a_verdict_are_left(cut_short, request_):
    folder = cut_short(*began(judged("a", "passed")))
    resumed = plan_resumed(request_, "last")
    assert resumed.resumed == folder
    assert jobs_of(resumed) == [(2, ["b"]), (4, ["c"])]
    assert resumed.suite.text == SUITE


@pytest.mark.timeout(10)
def test_a_pipe_in_the_place_of_the_suite_is_not_waited_for(cut_short, request_):
    suite = cut_short(*began()).path / "suite.yaml"
    suite.unlink()
    os.mkfifo(suite)
    with pytest.raises(UsageError, match=r"suite.yaml or run.json is damaged .*it is a pipe"):
        plan_resumed(request_, "last")


def test_cases_that_were_cancelled_or_skipped_are_left_and_failures_are_not(cut_short, request_):
    ends = [judged("a", "failed"), judged("b", "cancelled"), judged("c", "skipped")]
    cut_short(*began(*ends), run_end("cancelled", 130), report=True, **ENDED)
    assert jobs_of(plan_resumed(request_, "last")) == [(2, ["b"]), (4, ["c"])]


def test_what_was_set_in_the_suite_is_set_again(cut_short, request_):
    cut_short(*began())
    [(case, *_), *_] = [job.cases for job in plan_resumed(request_, "last").jobs]
    assert case.params["iterations"] == 9


def test_a_run_that_was_killed_before_its_first_event_begins_anew(cut_short, request_):
    folder = cut_short()
    resumed = plan_resumed(request_, folder.id)
    assert jobs_of(resumed) == [(2, ["a", "b"]), (4, ["c"])]


def test_a_run_that_was_killed_before_its_report_has_no_case_left_and_is_ended(cut_short, request_):
    cut_short(*began(*(judged(name) for name in "abc")))
    assert plan_resumed(request_, "last").jobs == ()


def test_a_run_that_went_to_its_end_has_nothing_left(cut_short, request_):
    ends = [judged(name) for name in "abc"]
    cut_short(*began(*ends), run_end(), report=True, verdict="passed")
    with pytest.raises(NothingSelected, match="went to its end: its 3 cases have their verdicts"):
        plan_resumed(request_, "last")


def test_the_number_of_ranks_stays_that_of_the_run(cut_short, request_):
    cut_short(run_start(described("a", np=3), *CASES[1:]))
    assert jobs_of(plan_resumed(request_, "last"))[0] == (3, ["a"])


@pytest.mark.parametrize("planner", [plan_resumed, plan_failed])
def test_a_run_that_still_goes_on_is_left_alone(cut_short, request_, planner, monkeypatch):
    monkeypatch.setattr("spbench.record.runs.folder.process_start", lambda pid: 999.0)
    cut_short(*began(judged("a", "failed")))
    with pytest.raises(UsageError, match="is still running; wait for its end, or cancel it"):
        planner(request_, "last")


@pytest.mark.parametrize("planner", [plan_resumed, plan_failed])
def test_a_run_on_another_host_may_still_go_on(cut_short, request_, planner):
    cut_short(*began(), console={"pid": 1, "host": "node07", "started": 1000.0})
    with pytest.raises(UsageError, match="is still running on node07, so far as can be seen"):
        planner(request_, "last")


def test_a_run_of_an_earlier_version_does_not_say_enough(cut_short, request_):
    cut_short(*began(), request=None)
    with pytest.raises(UsageError, match="does not say what it was asked for"):
        plan_resumed(request_, "last")


def test_a_run_that_another_spbench_went_on_with_meanwhile_is_left_alone(cut_short, request_):
    folder = cut_short(*began(judged("a")))
    planned = plan_resumed(request_, "last")
    reject_overtaken(folder, planned, folder.replay())
    state = state_of(began(judged("a"), judged("b")))
    with pytest.raises(UsageError, match="was resumed by another spbench meanwhile"):
        reject_overtaken(folder, planned, state)


@pytest.mark.parametrize(("given", "retries"), [(0, 2), (5, 5)])
def test_retries_are_those_of_the_run_unless_others_are_given(cut_short, request_, given, retries):
    asked = Request(suite=Path("made-up.yaml"), home=Path(), environ={}, retries=2)
    cut_short(*began(), request=asked.to_record())
    assert plan_resumed(replace(request_, retries=given), "last").request.retries == retries


@pytest.mark.parametrize("request_json", [{}, {"overrides": 1}, {"chosen": {"rocks": "1"}}])
def test_a_damaged_request_is_a_sentence(cut_short, request_, request_json):
    cut_short(*began(), request=request_json)
    with pytest.raises(UsageError, match=r"its suite.yaml or run.json is damaged"):
        plan_resumed(request_, "last")


def test_a_case_that_this_version_no_longer_makes_is_named(cut_short, request_):
    cut_short(run_start(*CASES, described("d")))
    with pytest.raises(UsageError, match="has the case d, which its suite no longer gives"):
        plan_resumed(request_, "last")


def test_hosts_are_those_of_before_unless_others_are_chosen(cut_short, request_, tmp_path):
    hosts = tmp_path / "two.hosts"
    hosts.write_text("localhost:4\n")
    chosen = LaunchChoice(hostfile="two.hosts")
    asked = Request(suite=tmp_path / "x", home=tmp_path, environ={}, launch_choice=chosen)
    cut_short(*began(), request=asked.to_record())
    assert plan_resumed(request_, "last").request.launch_choice.hostfile == hosts
    now = Request(**vars_of(request_) | {"launch_choice": LaunchChoice(hosts="localhost:8")})
    assert plan_resumed(now, "last").request.launch_choice == now.launch_choice


def test_a_run_with_too_many_ranks_is_allowed_again_or_now(cut_short, request_, tmp_path):
    chosen = LaunchChoice(hosts="localhost:8", oversubscribe=True)
    asked = Request(suite=tmp_path / "x", home=tmp_path, environ={}, launch_choice=chosen)
    cut_short(*began(), request=asked.to_record())
    again = plan_resumed(request_, "last")
    assert again.request.launch_choice == chosen
    assert {job.settings.oversubscribe for job in again.jobs} == {"force"}


def test_the_permission_alone_keeps_the_hosts_of_before(cut_short, request_, tmp_path):
    chosen = LaunchChoice(hosts="localhost:8")
    asked = Request(suite=tmp_path / "x", home=tmp_path, environ={}, launch_choice=chosen)
    cut_short(*began(), request=asked.to_record())
    now = Request(**vars_of(request_) | {"launch_choice": LaunchChoice(oversubscribe=True)})
    expected = LaunchChoice(hosts="localhost:8", oversubscribe=True)
    assert plan_resumed(now, "last").request.launch_choice == expected


def vars_of(request):
    return {name: getattr(request, name) for name in Request.__dataclass_fields__}


def test_what_failed_is_run_again_as_a_run_of_its_own(cut_short, request_):
    ends = [judged("a", "failed"), judged("b", "error"), judged("c", "cancelled")]
    cut_short(*began(*ends), run_end("error", 4), report=True, verdict="error")
    again = plan_failed(request_, "last")
    assert again.resumed is None
    assert jobs_of(again) == [(2, ["a", "b"])]
    assert again.request.to_record()["cases"] == ["a", "b"]
    assert again.request.to_record()["overrides"] == ["iterations=9"]


def test_what_failed_is_run_again_with_the_cases_that_it_is_held_against(cut_short, request_):
    expect = "expect: {time_ms: {max: 2 * case(a).time_ms}}"
    suite = SUITE.replace("repeat: 2}", f"repeat: 2, {expect}}}")
    assert suite != SUITE
    ends = [judged("a"), judged("b", "failed"), judged("c")]
    folder = cut_short(*began(*ends), run_end("failed", 1), report=True, verdict="failed")
    folder.write_text("suite.yaml", suite)
    again = plan_failed(request_, "last")
    assert jobs_of(again) == [(2, ["a", "b"])]
    assert set(again.request.cases) == {"a", "b"}


def test_nothing_failed(cut_short, request_):
    folder = cut_short(*began(*(judged(name) for name in "abc")))
    with pytest.raises(NothingSelected, match=f"no case of run {folder.id} failed"):
        plan_failed(request_, "last")


def test_a_request_of_a_plain_run_can_be_noted_and_is_plain(tmp_path):
    file = tmp_path / "made-up.yaml"
    file.write_text(SUITE)
    planned = plan_run(Request(suite=file, home=tmp_path, environ={}, cases=("a",)))
    assert planned.resumed is None
    nothing = {"overrides": [], "keyword": None, "inject": [], "chosen": {}}
    never = {"retries": 0, "fail_on_flaky": False}
    assert planned.request.to_record() == {**nothing, **never, "cases": ["a"]}


@pytest.mark.parametrize(
    ("recorded", "planted"),
    [(None, [None, None]), ("kill@a", ["kill", None]), (["kill@a", "raise@b"], ["kill", "raise"])],
)
def test_planted_faults_are_planted_again(cut_short, request_, recorded, planted):
    folder = cut_short(*began(judged("c")))
    run = folder.read_json("run.json")
    folder.write_json("run.json", run | {"request": run["request"] | {"inject": recorded}})
    resumed = plan_resumed(request_, "last")
    cases = {case.id: case.inject for job in resumed.jobs for case in job.cases}
    assert [cases["a"], cases["b"]] == planted


def test_a_shipped_suite_keeps_its_name_wherever_its_run_was_started(cut_short, request_):
    cut_short(*began(), file="shipped:made-up")
    assert plan_resumed(request_, "last").request.suite == Path("shipped:made-up")
