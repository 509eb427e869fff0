"""The system of a run: detected, chosen, recorded, and kept by later runs."""

import pytest

from spbench.cli.app import run_command_line
from spbench.engine.plan import Request, plan_run
from spbench.engine.resume import plan_failed, plan_resumed
from spbench.engine.run_metadata import build_run_json, describe_case
from spbench.errors import SuiteError, UsageError
from spbench.suites import site_file
from spbench.suites.site_file import derive_system_name, find_system, read_site_file
from spbench_core.events.run_events import check_run_event
from support.sample_events import case_judged, record_run, run_end, run_start
from support.sample_events import describe_case as describe_sample

SUITE = """\
schema: spbench.suite/1
name: made-up
cases:
  - name: a
    benchmark: link.pingpong
    np: 2
    expect:
      time_ms.n: {max: 1000}
      time_ms.p50:
        systems:
          big: {reference: 0.5, lower: -0.1, upper: 0.5}
          vm: {reference: 2, upper: 0.5}
      bandwidth_gb_s: {reference: 12, lower: -0.1}
"""
PLAIN = SUITE.partition("    expect")[0]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return a home without a site file, on a host of the cluster `node`."""
    monkeypatch.setattr(site_file, "find_user_site", lambda: tmp_path / "config" / "site.yaml")
    monkeypatch.setattr("socket.gethostname", lambda: "node017.example.org")
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def make_request(home, tmp_path):
    """Return a function that builds a request for `SUITE` or another text."""

    def make_request(text=SUITE, **changes):
        suite = tmp_path / "made-up.yaml"
        suite.write_text(text)
        return Request(suite=suite, home=home, environ={}, **changes)

    return make_request


def write_site(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"schema: spbench.site/1\n{text}\n")


def list_limits(run_plan):
    (case,) = (case for job in run_plan.jobs for case in job.cases)
    return [expected.limit for expected in case.expect if expected.metric == "time_ms.p50"]


@pytest.mark.parametrize(
    ("host", "system"),
    [
        ("node017.cluster.example.org", "node"),
        ("node-17", "node"),
        ("login", "login"),
        ("r2d2", "r2d"),
        ("4711", "4711"),
    ],
)
def test_derives_the_system_from_the_host_name(host, system):
    assert derive_system_name(host) == system


def test_site_file_of_the_home_precedes_user_and_host(home, tmp_path):
    assert find_system(home, pytest.fail) == "node"
    write_site(tmp_path / "config" / "site.yaml", "name: of-the-user")
    assert find_system(home, pytest.fail) == "of-the-user"
    write_site(home / "site.yaml", "batch: {nodes: 2}")
    assert find_system(home, pytest.fail) == "of-the-user"
    write_site(home / "site.yaml", "name: of-the-home")
    assert find_system(home, pytest.fail) == "of-the-home"


def test_skips_a_world_writable_site_file_with_a_warning(home):
    write_site(home / "site.yaml", "name: planted")
    (home / "site.yaml").chmod(0o666)
    warnings = []
    assert find_system(home, warnings.append) == "node"
    (warning,) = warnings
    assert warning.startswith(f"{home / 'site.yaml'} was skipped: it is world-writable")
    assert warning.endswith("its name is not used, give the system with --system")


def test_invalid_site_name_is_an_error_at_its_line(home):
    write_site(home / "site.yaml", "name: a b")
    with pytest.raises(SuiteError) as caught:
        read_site_file(home / "site.yaml")
    assert str(caught.value).startswith(f"{home / 'site.yaml'}:2:7: error: name is 'a b'; use")


def test_run_takes_the_references_of_its_system(make_request, home):
    unknown = plan_run(make_request())
    assert (unknown.request.system, list_limits(unknown)) == ("node", [None])
    write_site(home / "site.yaml", "name: vm")
    detected = plan_run(make_request())
    assert (detected.request.system, list_limits(detected)) == ("vm", [3.0])
    chosen = plan_run(make_request(system="big"))
    assert (chosen.request.system, list_limits(chosen)) == ("big", [0.75, 0.45])


def test_suite_without_systems_needs_no_site_file(make_request, home, messages):
    write_site(home / "site.yaml", "nome: vm")
    assert plan_run(make_request(PLAIN)).request.system is None
    with messages.raises(SuiteError):
        plan_run(make_request())


def test_run_start_has_the_references_with_their_units(make_request):
    run_plan = plan_run(make_request(system="vm"))
    (case,) = run_plan.jobs[0].cases
    event = describe_sample() | describe_case(case, [2])
    check_run_event(run_start(event))
    count, upper, lower = event["expect"]
    assert count == {"metric": "time_ms.n", "op": "max", "limit": 1000}
    reference = {"value": 2.0, "unit": "ms", "lower": None, "upper": 0.5, "system": "vm"}
    assert upper == {"metric": "time_ms.p50", "op": "max", "limit": 3.0, "reference": reference}
    assert lower["reference"] == {
        "value": 12.0,
        "unit": "GB/s",
        "lower": -0.1,
        "upper": None,
        "system": None,
    }


def test_run_start_has_the_reason_of_an_unknown_system(make_request):
    (case,) = plan_run(make_request()).jobs[0].cases
    event = describe_sample() | describe_case(case, [2])
    check_run_event(run_start(event))
    assert event["expect"][1] == {
        "metric": "time_ms.p50",
        "op": "max",
        "limit": None,
        "skipped": "no reference for system node (suite has big, vm)",
    }


@pytest.fixture
def record_interrupted(make_request, home):
    """Return a function that records a run of `SUITE` for the system ``vm``."""

    def record(*events, **changes):
        run_plan = plan_run(make_request(system="vm"))
        console = {"pid": 0, "host": "node017.example.org", "started": 1.0, "since_boot": 1.0}
        facts = build_run_json(run_plan, "", {}) | {"console": console} | changes
        folder = record_run(home, [run_start(describe_sample("a")), *events], **facts)
        folder.write_text("suite.yaml", SUITE)
        return folder

    return record


@pytest.mark.parametrize(
    ("planner", "events"),
    [
        (plan_resumed, []),
        (plan_failed, [case_judged("a", "failed"), run_end("failed", 1)]),
    ],
)
def test_resume_and_retry_keep_the_system(record_interrupted, make_request, planner, events):
    folder = record_interrupted(*events)
    assert folder.read_json("run.json")["system"] == "vm"
    plan = planner(make_request(), "last")
    assert (plan.request.system, list_limits(plan)) == ("vm", [3.0])


def test_run_without_a_recorded_system_takes_the_current_one(record_interrupted, make_request):
    record_interrupted(system=None)
    assert plan_resumed(make_request(), "last").request.system == "node"


def test_invalid_recorded_system_is_a_damaged_run(record_interrupted, make_request):
    record_interrupted(system=3)
    with pytest.raises(UsageError, match=r"suite.yaml or run.json is damaged"):
        plan_resumed(make_request(), "last")


@pytest.mark.parametrize(
    ("option", "override"), [("--resume", "repeat=4"), ("--failed", "iterations=9")]
)
def test_rejects_other_parameters_for_a_recorded_run(
    record_interrupted, home, option, override, capsys
):
    folder = record_interrupted()
    arguments = ["run", option, folder.id, "--set", override, "--home", str(home)]
    assert run_command_line(arguments) == 2
    assert f"leave out --set {override}\n" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--resume", "--failed"])
def test_rejects_another_system_for_a_recorded_run(record_interrupted, home, option, capsys):
    folder = record_interrupted()
    arguments = ["run", option, folder.id, "--system", "big", "--home", str(home)]
    assert run_command_line(arguments) == 2
    assert capsys.readouterr().err == (
        f"spbench: error: {option} takes suite and cases as the run recorded them; "
        "leave out --system\n"
    )


@pytest.mark.parametrize("command", ["run", "scale", "script", "submit", "validate"])
def test_rejects_an_invalid_system_name(make_request, command, capsys, messages):
    arguments = [command, str(make_request().suite), "--system", "a b"]
    assert run_command_line(arguments) == 2
    messages.check(capsys.readouterr().err)


def test_validate_reports_missing_references_of_a_system(make_request, capsys):
    suite = str(make_request().suite)
    assert run_command_line(["validate", suite, "--system", "laptop"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{suite}: 1 case, no errors",
        "  a: expect of time_ms.p50 skipped: no reference for system laptop (suite has big, vm)",
    ]
    assert run_command_line(["validate", suite, "--system", "vm"]) == 0
    assert capsys.readouterr().out == f"{suite}: 1 case, no errors\n"
