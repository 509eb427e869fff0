"""Plans for more devices than there are: what counts as one, and the refusal before a launch."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from spbench.errors import MissingError
from spbench.launch import devices
from spbench.launch.devices import available_devices, check_devices
from spbench.launch.hosts.hosts import Hosts, parse_hosts
from spbench.launch.jobs import Job
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS


def job(np: int, *, device: str = "cpu", **settings: object) -> Job:
    launch = LaunchSettings(**{"oversubscribe": False, **settings})
    entry = BENCHMARKS["compute.gemm"]
    params = entry.complete({"device": device})
    case = Case("plan", "plan", entry.name, params, np, 1, (), launch, 1)
    return Job(1, (case,), np, launch)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count_cores", lambda: 2)


def available(hosts: Hosts | None = None, **env: str) -> int | None:
    found = available_devices(job(1), hosts, env)
    return None if found is None else found[0]


def test_devices_are_slots_or_cores_of_an_allocation_or_of_this_machine(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("a\na\nb\n")
    assert available() == 2
    assert available(parse_hosts("a:4,b:4")) == 8
    assert available(SLURM_JOB_ID="1", SLURM_JOB_CPUS_PER_NODE="16(x2),8") == 40
    assert available(PBS_NODEFILE=str(nodes)) == 3
    assert available(LSB_JOBID="1", LSB_DJOB_NUMPROC="12") == 12
    os.truncate(nodes, 10**11)  # a hole, of which only the beginning is read
    assert available(PBS_NODEFILE=str(nodes)) == 4


@pytest.mark.parametrize(
    "env",
    [
        {"SLURM_JOB_ID": "1"},
        {"SLURM_JOB_ID": "1", "SLURM_JOB_CPUS_PER_NODE": "many"},
        {"PBS_NODEFILE": "/nowhere"},
        {"LSB_JOBID": "1"},
        {"FLUX_URI": "local:///run/flux"},
    ],
)
def test_an_allocation_that_does_not_say_its_size_is_left_to_the_launcher(
    env: dict[str, str],
) -> None:
    assert available(**env) is None
    check_devices([(job(32), None)], env)


def test_ranks_per_host_counts_for_each_host() -> None:
    found = available_devices(job(1, ranks_per_host=3), parse_hosts("a:8,b:8"), {})
    assert found == (6, "--hosts has 6 slots")


def test_more_ranks_than_devices_are_refused_with_both_numbers() -> None:
    with pytest.raises(MissingError) as refused:
        check_devices([(job(2), None), (job(32), None)], {})
    assert str(refused.value).startswith(
        "case plan is for 32 devices, one for each rank, and this machine has 2 cores: "
    )


def test_other_suites_may_share_cores() -> None:
    check_devices([(job(32, oversubscribe=True), None)], {})
    assert LaunchSettings().oversubscribe


def test_cores_do_not_count_where_devices_are_gpus() -> None:
    check_devices([(job(32, device="cuda"), None)], {})
    on_both = job(32, device="cuda")
    mixed = replace(on_both, cases=(*on_both.cases, *job(32).cases))
    check_devices([(mixed, None)], {})
