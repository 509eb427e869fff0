"""Hosts that are fit for a run, and the run without the others, over a stand-in for ssh."""

from __future__ import annotations

from pathlib import Path

import pytest

from quick_hosts import QuickHosts
from spbench.engine.plan import Request, RunPlan, plan_run
from spbench.engine.preflight import find_unfit_hosts, group_by_reason, run_preflight
from spbench.errors import MissingError
from spbench.launch.choice import LaunchChoice
from spbench.launch.survey import progress
from spbench.launch.survey.facts import HostFacts

SUITE = """\
schema: spbench.suite/1
name: links
cases:
  - {name: all, benchmark: memory.copy}
  - {name: two, benchmark: link.pingpong, np: 2}
"""


@pytest.fixture
def hosts(tmp_path, monkeypatch) -> QuickHosts:
    made = QuickHosts(tmp_path / "quick", 0)
    monkeypatch.setenv("PATH", made.env["PATH"])
    for name, value in made.env.items():
        if name.startswith("QUICK"):
            monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def planned(hosts, tmp_path):
    (tmp_path / "links.yaml").write_text(SUITE)

    def planned(names: str, *, preflight: bool = False, skip: bool = False) -> RunPlan:
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

    return planned


async def test_nobody_is_asked_unless_wanted(planned):
    run = planned("node[1-2]:2")
    looked = await run_preflight(run, print)
    assert (looked.plan, looked.excluded, looked.host_facts) == (run, (), None)


async def test_hosts_that_ssh_does_not_reach_are_left_out_with_their_reasons(hosts, planned):
    hosts.add("node1")
    hosts.add_without_mpi("node2")
    for name in ("node3", "node4"):
        hosts.refuse(name)
    said: list[str] = []
    looked = await run_preflight(planned("node[1-4]:2", skip=True), said.append)
    assert looked.excluded == ("left out: node[3-4]: HOST: Permission denied (publickey).",)
    assert [line for line in said if "left out" in line] == list(looked.excluded)
    # of all slots only those that are left get a rank, and jobs of so many ranks are one
    (job,) = [job for job in looked.plan.jobs if job.cases[0].name == "all"]
    assert job.np == 4
    assert looked.plan.find_hosts(job).names == ("node1", "node2")


async def test_with_a_preflight_hosts_must_have_what_ranks_need(hosts, planned):
    pytest.importorskip("mpi4py")
    hosts.add("node1")
    hosts.add_without_mpi("node2")
    looked = await run_preflight(planned("node[1-2]:2", preflight=True, skip=True), print)
    (sentence,) = looked.excluded
    assert sentence.startswith("left out: node2: MPI library: ")
    (told,) = looked.host_facts.values()
    assert told["node1"].mpi
    with pytest.raises(
        MissingError, match=r"^not fit for this run: node2: MPI library: .*--skip-b"
    ):
        await run_preflight(planned("node[1-2]:2", preflight=True), print)


async def test_no_host_is_left(hosts, planned):
    hosts.refuse("node1")
    with pytest.raises(MissingError, match=r"no host of --hosts is fit"):
        await run_preflight(planned("node1:2", skip=True), print)


@pytest.mark.slow
async def test_who_waits_is_told_how_far_it_is(hosts, planned, monkeypatch):
    monkeypatch.setattr(progress, "INTERVAL", 0.05)
    monkeypatch.setenv("QUICK_SSH_SECONDS", "0.5")
    hosts.env["QUICK_SSH_SECONDS"] = "0.5"
    hosts.add("node1")
    for wanted in ({"preflight": True}, {"skip": True}):
        said: list[str] = []
        await run_preflight(planned("node1:2", **wanted), said.append)
        assert said[0].startswith("asking hosts: 0 of 1 after 0 s")


def test_the_mpi_library_of_most_hosts_is_the_right_one():
    mpi = dict.fromkeys(["a", "b", "c"], "Open MPI v5.0.11") | {"d": "MPICH 4.2"}
    told = [HostFacts(host, "ok", mpi=library) for host, library in mpi.items()]
    lacking = HostFacts("e", "missing", "torch: none")
    assert find_unfit_hosts([*told, lacking]) == {
        "e": "torch: none",
        "d": "its MPI library is MPICH 4.2, and most hosts have Open MPI v5.0.11",
    }
    assert find_unfit_hosts([told[0], told[3]]) == {}


def test_reasons_are_told_once_for_all_their_hosts():
    assert group_by_reason({"a1": "a1: no", "b": "b: lost", "a2": "a2: no"}) == [
        "a[1-2]: HOST: no",
        "b: b: lost",
    ]
