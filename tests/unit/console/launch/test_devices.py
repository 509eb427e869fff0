"""Tests of available devices, and of the error if a plan needs more."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from spbench.errors import MissingError
from spbench.launch import devices
from spbench.launch.devices import check_devices, count_available_devices
from spbench.launch.hosts.hosts import Hosts, parse_hosts
from spbench.launch.jobs import Job
from spbench.suites.case import Case
from spbench.suites.settings import LaunchSettings
from spbench_core.catalog import BENCHMARKS


def build_job(np: int, *, device: str = "cpu", **settings: object) -> Job:
    launch = LaunchSettings(**{"oversubscribe": False, **settings})
    entry = BENCHMARKS["compute.gemm"]
    params = entry.complete({"device": device})
    case = Case("plan", "plan", entry.name, params, np, 1, (), launch, 1)
    return Job(1, (case,), np, launch)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count_cores", lambda: 2)


def count_available(hosts: Hosts | None = None, **env: str) -> int | None:
    counted = count_available_devices(build_job(1), hosts, env)
    return None if counted is None else counted[0]


def test_devices_are_slots_or_cores(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("a\na\nb\n")
    assert count_available() == 2
    assert count_available(parse_hosts("a:4,b:4")) == 8
    assert count_available(SLURM_JOB_ID="1", SLURM_JOB_CPUS_PER_NODE="16(x2),8") == 40
    assert count_available(PBS_NODEFILE=str(nodes)) == 3
    assert count_available(LSB_JOBID="1", LSB_DJOB_NUMPROC="12") == 12
    os.truncate(nodes, 10**11)  # a sparse file: only its beginning is read
    assert count_available(PBS_NODEFILE=str(nodes)) == 4


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
def test_allocation_of_unknown_size_is_not_checked(
    env: dict[str, str],
) -> None:
    assert count_available(**env) is None
    check_devices([(build_job(32), None)], env)


def test_ranks_per_host_limits_the_slots() -> None:
    counted = count_available_devices(build_job(1, ranks_per_host=3), parse_hosts("a:8,b:8"), {})
    assert counted == (6, "--hosts has 6 slots")


def test_error_for_too_many_ranks_has_both_numbers(messages) -> None:
    with pytest.raises(MissingError) as raised:
        check_devices([(build_job(2), None), (build_job(32), None)], {})
    messages.check(str(raised.value))


def test_oversubscription_is_not_checked() -> None:
    check_devices([(build_job(32, oversubscribe=True), None)], {})
    assert LaunchSettings().oversubscribe


def test_cores_do_not_limit_gpu_jobs() -> None:
    check_devices([(build_job(32, device="cuda"), None)], {})
    on_both = build_job(32, device="cuda")
    mixed = replace(on_both, cases=(*on_both.cases, *build_job(32).cases))
    check_devices([(mixed, None)], {})
