"""The system of a run: found, given, recorded, and kept by what continues the run."""

import pytest

from spbench.cli.app import run_command_line
from spbench.engine.plan import Request, plan_run
from spbench.engine.resume import plan_failed, plan_resumed
from spbench.engine.run_metadata import build_run_json, describe_case
from spbench.errors import SuiteError, UsageError
from spbench.suites import site_file
from spbench.suites.site_file import derive_system_name, find_system, read_site_file
from spbench_core.events.run_events import check_run_event
from unit.events import described, judged, recorded, run_end, run_start

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
    """A home without a site file, on a host of the cluster `node`."""
    monkeypatch.setattr(site_file, "find_user_site", lambda: tmp_path / "config" / "site.yaml")
    monkeypatch.setattr("socket.gethostname", lambda: "node017.example.org")
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def requested(home, tmp_path):
    """Returns the request for a run of `SUITE`, or of another text."""

    def requested(text=SUITE, **changes):
        suite = tmp_path / "made-up.yaml"
        suite.write_text(text)
        return Request(suite=suite, home=home, environ={}, **changes)

    return requested


def write_site(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"schema: spbench.site/1\n{text}\n")


def limits(planned):
    (case,) = (case for job in planned.jobs for case in job.cases)
    return [item.limit for item in case.expect if item.metric == "time_ms.p50"]


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
def test_the_name_of_a_host_without_its_number_and_domain_is_the_system(host, system):
    assert derive_system_name(host) == system


def test_the_site_file_of_the_home_comes_before_the_users_and_the_host(home, tmp_path):
    assert find_system(home, pytest.fail) == "node"
    write_site(tmp_path / "config" / "site.yaml", "name: of-the-user")
    assert find_system(home, pytest.fail) == "of-the-user"
    write_site(home / "site.yaml", "batch: {nodes: 2}")
    assert find_system(home, pytest.fail) == "of-the-user"
    write_site(home / "site.yaml", "name: of-the-home")
    assert find_system(home, pytest.fail) == "of-the-home"


def test_a_site_file_that_others_can_write_is_skipped_with_a_warning(home):
    write_site(home / "site.yaml", "name: planted")
    (home / "site.yaml").chmod(0o666)
    warnings = []
    assert find_system(home, warnings.append) == "node"
    (warning,) = warnings
    assert warning.startswith(f"{home / 'site.yaml'} was skipped: it is world-writable")
    assert warning.endswith("its name is not used, give the system with --system")


def test_a_wrong_name_of_a_site_is_an_error_at_its_place(home):
    write_site(home / "site.yaml", "name: a b")
    with pytest.raises(SuiteError) as caught:
        read_site_file(home / "site.yaml")
    assert str(caught.value).startswith(f"{home / 'site.yaml'}:2:7: error: name is 'a b'; use")


def test_a_run_takes_the_references_of_its_system(requested, home):
    unknown = plan_run(requested())
    assert (unknown.request.system, limits(unknown)) == ("node", [None])
    write_site(home / "site.yaml", "name: vm")
    found = plan_run(requested())
    assert (found.request.system, limits(found)) == ("vm", [3.0])
    given = plan_run(requested(system="big"))
    assert (given.request.system, limits(given)) == ("big", [0.75, 0.45])


def test_a_suite_without_systems_needs_no_site_file(requested, home):
    write_site(home / "site.yaml", "nome: vm")
    assert plan_run(requested(PLAIN)).request.system is None
    with pytest.raises(SuiteError, match="unknown key 'nome'"):
        plan_run(requested())


def test_the_first_event_has_the_references_with_their_units(requested):
    planned = plan_run(requested(system="vm"))
    (case,) = planned.jobs[0].cases
    event = described() | describe_case(case, [2])
    check_run_event(run_start(event))
    count, most, least = event["expect"]
    assert count == {"metric": "time_ms.n", "op": "max", "limit": 1000}
    reference = {"value": 2.0, "unit": "ms", "lower": None, "upper": 0.5, "system": "vm"}
    assert most == {"metric": "time_ms.p50", "op": "max", "limit": 3.0, "reference": reference}
    assert least["reference"] == {
        "value": 12.0,
        "unit": "GB/s",
        "lower": -0.1,
        "upper": None,
        "system": None,
    }


def test_the_first_event_has_the_reason_of_an_unknown_system(requested):
    (case,) = plan_run(requested()).jobs[0].cases
    event = described() | describe_case(case, [2])
    check_run_event(run_start(event))
    assert event["expect"][1] == {
        "metric": "time_ms.p50",
        "op": "max",
        "limit": None,
        "skipped": "no reference for system node (suite has big, vm)",
    }


@pytest.fixture
def interrupted(requested, home):
    """Record a run of `SUITE` for the system `vm`, with these events; returns its folder."""

    def record(*events, **changes):
        planned = plan_run(requested(system="vm"))
        started = {"pid": 0, "host": "node017.example.org", "started": 1.0, "since_boot": 1.0}
        facts = build_run_json(planned, "", {}) | {"console": started} | changes
        folder = recorded(home, [run_start(described("a")), *events], **facts)
        folder.write_text("suite.yaml", SUITE)
        return folder

    return record


@pytest.mark.parametrize(
    ("planner", "events"),
    [
        (plan_resumed, []),
        (plan_failed, [judged("a", "failed"), run_end("failed", 1)]),
    ],
)
def test_what_continues_a_run_keeps_its_system(interrupted, requested, planner, events):
    folder = interrupted(*events)
    assert folder.read_json("run.json")["system"] == "vm"
    again = planner(requested(), "last")
    assert (again.request.system, limits(again)) == ("vm", [3.0])


def test_a_run_of_an_earlier_version_has_the_system_of_now(interrupted, requested):
    interrupted(system=None)
    assert plan_resumed(requested(), "last").request.system == "node"


def test_a_damaged_system_is_a_damaged_run(interrupted, requested):
    interrupted(system=3)
    with pytest.raises(UsageError, match=r"suite.yaml or run.json is damaged"):
        plan_resumed(requested(), "last")


@pytest.mark.parametrize("option", ["--resume", "--failed"])
def test_another_system_cannot_be_chosen_for_a_recorded_run(interrupted, home, option, capsys):
    folder = interrupted()
    words = ["run", option, folder.id, "--system", "big", "--home", str(home)]
    assert run_command_line(words) == 2
    assert capsys.readouterr().err == (
        f"spbench: error: {option} takes suite and cases as the run recorded them; "
        "leave out --system\n"
    )


@pytest.mark.parametrize("command", ["run", "scale", "script", "submit", "validate"])
def test_a_name_that_no_suite_can_have_is_refused(requested, command, capsys):
    words = [command, str(requested().suite), "--system", "a b"]
    assert run_command_line(words) == 2
    assert capsys.readouterr().err.startswith("spbench: error: --system 'a b': use letters")


def test_validate_reports_expectations_without_a_reference_for_a_system(requested, capsys):
    suite = str(requested().suite)
    assert run_command_line(["validate", suite, "--system", "laptop"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{suite}: 1 case, no errors",
        "  a: expect of time_ms.p50 skipped: no reference for system laptop (suite has big, vm)",
    ]
    assert run_command_line(["validate", suite, "--system", "vm"]) == 0
    assert capsys.readouterr().out == f"{suite}: 1 case, no errors\n"
