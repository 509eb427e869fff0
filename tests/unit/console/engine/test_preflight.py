"""Preflight of hosts over a stand-in for ssh, and runs without unfit hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from spbench.engine.plan import Request, RunPlan, plan_run
from spbench.engine.preflight import find_unfit_hosts, group_by_reason, run_preflight
from spbench.errors import MissingError
from spbench.launch.choice import LaunchChoice
from spbench.launch.finding import FindingStatus
from spbench.launch.survey.facts import HostFacts
from support.quick_hosts import QuickHosts

SUITE = """\
schema: spbench.suite/1
name: links
cases:
  - {name: all, benchmark: memory.copy}
  - {name: two, benchmark: link.pingpong, np: 2}
"""


@pytest.fixture
def hosts(tmp_path, monkeypatch) -> QuickHosts:
    quick_hosts = QuickHosts(tmp_path / "quick", 0)
    monkeypatch.setenv("PATH", quick_hosts.env["PATH"])
    for name, value in quick_hosts.env.items():
        if name.startswith("QUICK"):
            monkeypatch.setenv(name, value)
    return quick_hosts


@pytest.fixture
def make_plan(hosts, tmp_path):
    (tmp_path / "links.yaml").write_text(SUITE)

    def make_plan(names: str, *, preflight: bool = False, skip: bool = False) -> RunPlan:
        return plan_run(
            Request(
                suite=Path(tmp_path / "links.yaml"),
                home=tmp_path / "home",
                environ=hosts.env,
                launch_choice=LaunchChoice(hosts=names),
                preflight=preflight,
                skip_bad_hosts=skip,
            )
        )

    return make_plan


async def test_contacts_no_host_without_an_option(make_plan):
    run = make_plan("node[1-2]:2")
    preflight = await run_preflight(run, print)
    assert (preflight.plan, preflight.excluded, preflight.host_facts) == (run, (), None)


async def test_excludes_unreachable_hosts_with_their_reasons(hosts, make_plan):
    hosts.add("node1")
    hosts.add_without_mpi("node2")
    for name in ("node3", "node4"):
        hosts.refuse(name)
    messages: list[str] = []
    preflight = await run_preflight(make_plan("node[1-4]:2", skip=True), messages.append)
    assert preflight.excluded == ("left out: node[3-4]: HOST: Permission denied (publickey).",)
    assert [line for line in messages if "left out" in line] == list(preflight.excluded)
    # only the remaining slots get a rank, and cases with the same number of ranks share a job
    (job,) = [job for job in preflight.plan.jobs if job.cases[0].name == "all"]
    assert job.np == 4
    assert preflight.plan.find_hosts(job).names == ("node1", "node2")


async def test_preflight_excludes_hosts_without_required_software(hosts, make_plan):
    pytest.importorskip("mpi4py")
    hosts.add("node1")
    hosts.add_without_mpi("node2")
    preflight = await run_preflight(make_plan("node[1-2]:2", preflight=True, skip=True), print)
    (message,) = preflight.excluded
    assert message.startswith("left out: node2: MPI library: ")
    (facts,) = preflight.host_facts.values()
    assert facts["node1"].mpi
    with pytest.raises(
        MissingError, match=r"^not fit for this run: node2: MPI library: .*--skip-b"
    ):
        await run_preflight(make_plan("node[1-2]:2", preflight=True), print)


async def test_no_remaining_host_is_an_error(hosts, make_plan, messages):
    hosts.refuse("node1")
    with messages.raises(MissingError):
        await run_preflight(make_plan("node1:2", skip=True), print)


@pytest.mark.slow
async def test_reports_progress_while_hosts_are_contacted(hosts, make_plan, monkeypatch):
    monkeypatch.setenv("QUICK_SSH_SECONDS", "1.2")
    hosts.env["QUICK_SSH_SECONDS"] = "1.2"
    hosts.add("node1")
    for options in ({"preflight": True}, {"skip": True}):
        messages: list[str] = []
        await run_preflight(make_plan("node1:2", **options), messages.append)
        assert messages[0].startswith("asking hosts: 0 of 1 after 1 s")


def test_hosts_with_a_minority_mpi_library_are_unfit():
    mpi = dict.fromkeys(["a", "b", "c"], "Open MPI v5.0.11") | {"d": "MPICH 4.2"}
    facts = [HostFacts(host, FindingStatus.OK, mpi=library) for host, library in mpi.items()]
    lacking = HostFacts("e", FindingStatus.MISSING, "torch: none")
    assert find_unfit_hosts([*facts, lacking]) == {
        "e": "torch: none",
        "d": "its MPI library is MPICH 4.2, and most hosts have Open MPI v5.0.11",
    }
    assert find_unfit_hosts([facts[0], facts[3]]) == {}
    lacking = HostFacts("e", FindingStatus.MISSING, "torch: none", mpi="MPICH 4.2")
    assert find_unfit_hosts([*facts[:3], lacking]) == {"e": "torch: none"}


def test_groups_hosts_by_reason(messages):
    messages.check(group_by_reason({"a1": "a1: no", "b": "b: lost", "a2": "a2: no"}))
