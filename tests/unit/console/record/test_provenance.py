"""Facts recorded about the machines of a run, for comparison with other runs."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from spbench.record.machine import environment, machine_files
from spbench.record.machine.environment import collect_facts
from spbench.record.machine.machine_files import read_cgroup_limits, read_governor, read_numa_nodes
from spbench.report.build import build_report
from spbench_core import host_facts
from support.sample_events import build_state, make_started_run, rank_event, run_end, run_start


def fingerprint(*ready_event):
    return build_state([run_start(), *ready_event]).machines.fingerprint()


def ready_event(rank=0, **fields):
    versions = {"mpi": "Open MPI 5.0", "torch": "2.9", "python": "3.11.2"}
    machine = {"host_cpus": 8, "processor": "Xeon", "versions": versions}
    return rank_event("ready", rank, **machine | fields)


def test_fingerprint_does_not_depend_on_the_order_of_ranks():
    ranks = [ready_event(0), ready_event(1, host="node02"), ready_event(2)]
    actual = fingerprint(*ranks)
    assert actual == fingerprint(*reversed(ranks))
    assert actual == {
        "id": actual["id"],
        "hosts": ["node01", "node02"],
        "processors": ["Xeon"],
        "cores": [8],
        "mpi": ["Open MPI 5.0"],
        "torch": ["2.9"],
    }
    assert len(actual["id"]) == 12


@pytest.mark.parametrize(
    "other",
    [
        {"host": "node03"},
        {"processor": "EPYC"},
        {"host_cpus": 16},
        {"versions": {"mpi": "MVAPICH 4", "torch": "2.9"}},
        {"versions": {"mpi": "Open MPI 5.0", "torch": "2.8"}},
    ],
)
def test_different_machine_has_a_different_fingerprint(other):
    assert fingerprint(ready_event(**other))["id"] != fingerprint(ready_event())["id"]


def test_fingerprint_ignores_facts_that_do_not_affect_results():
    versions = {"mpi": "Open MPI 5.0", "torch": "2.9", "python": "3.12"}
    assert fingerprint(ready_event(pid=5, cpus=[7], versions=versions)) == fingerprint(
        ready_event()
    )


def test_run_without_ready_ranks_has_no_fingerprint():
    assert fingerprint() is None
    assert "fingerprint" not in build_report(build_state([run_start()]))["environment"]


def test_report_has_fingerprint_and_load_before_and_after():
    events = [*make_started_run(), run_end() | {"load": 1.5}]
    events[0]["environment"] = {"host": "login", "load": 0.5}
    environment = build_report(build_state(events))["environment"]
    assert (environment["load"], environment["load_after"]) == (0.5, 1.5)
    assert environment["fingerprint"]["hosts"] == ["node01"]


# The console's machine


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Return a function that writes a file of a simulated kernel."""
    monkeypatch.setattr(machine_files, "PROC", tmp_path / "proc")
    monkeypatch.setattr(machine_files, "SYS", tmp_path / "sys")

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


def test_missing_kernel_files_are_no_error(kernel):
    assert (read_numa_nodes(), read_governor()) == ({}, None)
    assert read_cgroup_limits() == {"cpus": None, "memory_bytes": None}


def test_reads_numa_nodes_and_governor(kernel):
    for node in (10, 2):
        kernel(f"sys/devices/system/node/node{node}/cpulist", f"{node}-{node + 1}\n")
    kernel("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    assert list(read_numa_nodes().items()) == [("2", "2-3"), ("10", "10-11")]
    assert read_governor() == "powersave"


def test_lowest_limit_of_all_parent_cgroups_applies(kernel):
    kernel("proc/self/cgroup", "0::/slurm/job_7/step_0\n")
    kernel("sys/fs/cgroup/slurm/cpu.max", "800000 100000\n")
    kernel("sys/fs/cgroup/slurm/job_7/cpu.max", "150000 100000\n")
    kernel("sys/fs/cgroup/slurm/job_7/step_0/cpu.max", "max 100000\n")
    kernel("sys/fs/cgroup/slurm/job_7/memory.max", "4096\n")
    kernel("sys/fs/cgroup/memory.max", "max\n")
    assert read_cgroup_limits() == {"cpus": 1.5, "memory_bytes": 4096}


def test_reads_limits_of_cgroup_version_1(kernel):
    kernel("proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n")
    kernel("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n")
    kernel("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    kernel("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    kernel("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "8192\n")
    kernel("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert read_cgroup_limits() == {"cpus": 0.5, "memory_bytes": 8192}


def test_reads_the_processor_from_the_first_lines(tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(host_facts, "CPU_INFO", path)
    assert host_facts.read_processor() is None
    path.write_text("processor\t: 0\nmodel name\t: Xeon  Gold\nflags\t: " + "x" * 9999)
    assert host_facts.read_processor() == "Xeon  Gold"


def test_git_state_is_that_of_the_suite_folder(tmp_path, monkeypatch):
    def git(*arguments):
        identity = ["-c", "user.name=x", "-c", "user.email=x"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)

    suite = tmp_path / "suites" / "x.yaml"
    suite.parent.mkdir()
    suite.write_text("a")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    monkeypatch.chdir("/")
    facts = collect_facts({"UCX_TLS": "tcp", "HOME": "x"}, suite, "a")
    assert (facts["git"]["dirty"], len(facts["git"]["commit"])) == (False, 40)
    assert facts["suite_sha256"] == hashlib.sha256(b"a").hexdigest()
    assert facts["env"] == {"UCX_TLS": "tcp"}
    suite.write_text("b")
    assert collect_facts({}, suite, "b")["git"]["dirty"]
    assert collect_facts({}, Path("/x.yaml"), "")["git"] is None
    assert environment.read_load_average() >= 0
