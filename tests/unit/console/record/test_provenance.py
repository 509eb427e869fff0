"""What is kept of the machines of a run, so that another can be held against it."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from spbench.record.machine import environment, machine_files
from spbench.record.machine.environment import collect_facts
from spbench.record.machine.machine_files import read_cgroup_limits, read_governor, read_numa_nodes
from spbench.report.build import build_report
from spbench_core import host_facts
from unit.events import rank_event, run_end, run_start, started, state_of


def fingerprint(*ready):
    return state_of([run_start(), *ready]).machines.fingerprint()


def ready(rank=0, **told):
    versions = {"mpi": "Open MPI 5.0", "torch": "2.9", "python": "3.11.2"}
    machine = {"host_cpus": 8, "processor": "Xeon", "versions": versions}
    return rank_event("ready", rank, **machine | told)


def test_a_fingerprint_is_short_readable_and_the_same_in_any_order():
    ranks = [ready(0), ready(1, host="node02"), ready(2)]
    found = fingerprint(*ranks)
    assert found == fingerprint(*reversed(ranks))
    assert found == {
        "id": found["id"],
        "hosts": ["node01", "node02"],
        "processors": ["Xeon"],
        "cores": [8],
        "mpi": ["Open MPI 5.0"],
        "torch": ["2.9"],
    }
    assert len(found["id"]) == 12


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
def test_another_machine_has_another_fingerprint(other):
    assert fingerprint(ready(**other))["id"] != fingerprint(ready())["id"]


def test_what_changes_no_number_changes_no_fingerprint():
    versions = {"mpi": "Open MPI 5.0", "torch": "2.9", "python": "3.12"}
    assert fingerprint(ready(pid=5, cpus=[7], versions=versions)) == fingerprint(ready())


def test_a_run_whose_ranks_said_nothing_has_no_fingerprint():
    assert fingerprint() is None
    assert "fingerprint" not in build_report(state_of([run_start()]))["environment"]


def test_the_report_tells_fingerprint_and_the_load_before_and_after():
    events = [*started(), run_end() | {"load": 1.5}]
    events[0]["environment"] = {"host": "login", "load": 0.5}
    told = build_report(state_of(events))["environment"]
    assert (told["load"], told["load_after"]) == (0.5, 1.5)
    assert told["fingerprint"]["hosts"] == ["node01"]


# The console's machine


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Files of a made-up kernel; a call writes one."""
    monkeypatch.setattr(machine_files, "PROC", tmp_path / "proc")
    monkeypatch.setattr(machine_files, "SYS", tmp_path / "sys")

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


def test_a_kernel_that_tells_nothing_is_no_error(kernel):
    assert (read_numa_nodes(), read_governor()) == ({}, None)
    assert read_cgroup_limits() == {"cpus": None, "memory_bytes": None}


def test_nodes_and_governor_are_read(kernel):
    for node in (10, 2):
        kernel(f"sys/devices/system/node/node{node}/cpulist", f"{node}-{node + 1}\n")
    kernel("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    assert list(read_numa_nodes().items()) == [("2", "2-3"), ("10", "10-11")]
    assert read_governor() == "powersave"


def test_the_tightest_limit_of_all_groups_above_counts(kernel):
    kernel("proc/self/cgroup", "0::/slurm/job_7/step_0\n")
    kernel("sys/fs/cgroup/slurm/cpu.max", "800000 100000\n")
    kernel("sys/fs/cgroup/slurm/job_7/cpu.max", "150000 100000\n")
    kernel("sys/fs/cgroup/slurm/job_7/step_0/cpu.max", "max 100000\n")
    kernel("sys/fs/cgroup/slurm/job_7/memory.max", "4096\n")
    kernel("sys/fs/cgroup/memory.max", "max\n")
    assert read_cgroup_limits() == {"cpus": 1.5, "memory_bytes": 4096}


def test_limits_of_version_1_are_read(kernel):
    kernel("proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n")
    kernel("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n")
    kernel("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    kernel("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    kernel("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "8192\n")
    kernel("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert read_cgroup_limits() == {"cpus": 0.5, "memory_bytes": 8192}


def test_the_processor_is_that_of_the_first_lines(tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(host_facts, "CPU_INFO", path)
    assert host_facts.read_processor() is None
    path.write_text("processor\t: 0\nmodel name\t: Xeon  Gold\nflags\t: " + "x" * 9999)
    assert host_facts.read_processor() == "Xeon  Gold"


def test_the_git_state_is_that_of_the_suites_folder(tmp_path, monkeypatch):
    def git(*words):
        names = ["-c", "user.name=x", "-c", "user.email=x"]
        subprocess.run(["git", "-C", str(tmp_path), *names, *words], check=True)

    suite = tmp_path / "suites" / "x.yaml"
    suite.parent.mkdir()
    suite.write_text("a")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    monkeypatch.chdir("/")
    told = collect_facts({"UCX_TLS": "tcp", "HOME": "x"}, suite, "a")
    assert (told["git"]["dirty"], len(told["git"]["commit"])) == (False, 40)
    assert told["suite_sha256"] == hashlib.sha256(b"a").hexdigest()
    assert told["env"] == {"UCX_TLS": "tcp"}
    suite.write_text("b")
    assert collect_facts({}, suite, "b")["git"]["dirty"]
    assert collect_facts({}, Path("/x.yaml"), "")["git"] is None
    assert environment.read_load() >= 0
