"""Tests of ``spbench doctor`` over hosts, with a stand-in for ssh."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from spbench.cli.app import run_command_line
from spbench.launch.finding import FindingStatus
from spbench.launch.gpus.facts import Card, HostGpus
from spbench.launch.mpi_probe import MpiLibrary
from spbench.launch.survey.facts import HostFacts
from spbench_core import host_facts
from support.paths import ROOT
from support.ssh_hosts import SshHosts, make_idle_hosts


@pytest.fixture
def ssh(tmp_path, monkeypatch) -> SshHosts:
    hosts = make_idle_hosts(tmp_path / "ssh", monkeypatch)
    for name in ("PATH", "STANDIN_SSH_HOSTS"):
        monkeypatch.setenv(name, hosts.env[name])
    return hosts


@pytest.fixture
def doctor(ssh, capsys):
    def run(*args: str) -> tuple[int, str, str]:
        status = run_command_line(["doctor", *args])
        return status, *capsys.readouterr()

    return run


@pytest.mark.slow
def test_healthy_hosts_have_one_aligned_line_each(ssh, doctor, tmp_path):
    for name in ("node1", "longer-name-2"):
        ssh.add_with_packages(name)
    (tmp_path / "hosts").write_text("longer-name-2 slots=4\nnode1\n")
    status, out, _ = doctor("--hostfile", str(tmp_path / "hosts"))
    assert status == 0
    first, second = out.splitlines()
    assert first.startswith("✓ ok          longer-name-2 ")
    assert second.startswith("✓ ok          node1         ")
    for word in (" cores", " free", "load", "Open MPI v5.0.11", "torch 2.6.0", "Python 3"):
        assert first.index(word) == second.index(word)


@pytest.mark.slow
def test_findings_are_listed_below_the_hosts_with_fixes(ssh, doctor):
    for name in ("node1", "node2", "node3"):
        ssh.add_with_packages(name, torch="2.5.1" if name == "node3" else "2.6.0")
    status, out, _ = doctor("--hosts", "node[1-3],nowhere")
    assert status == 3
    lines = out.splitlines()
    assert [line.split()[1:3] for line in lines[:4]] == [
        ["ok", "node1"],
        ["ok", "node2"],
        ["ok", "node3"],
        ["unreachable", "nowhere"],
    ]
    assert lines[3].endswith("its name does not resolve")
    assert lines[4:] == [
        "✗ missing     nowhere      ssh: its name does not resolve",
        "                           fix: correct the name, or give it an address in /etc/hosts or "
        "~/.ssh/config: nowhere",
        "! note        torch        node3 has torch 2.5.1, the others 2.6.0",
    ]


def test_note_is_no_failure(ssh, doctor):
    ssh.add_with_packages("node1", spbench="0.0.1")
    status, out, _ = doctor("--hosts", "node1")
    assert status == 0
    assert out.splitlines()[0].startswith("! note        node1 ")
    assert "spbench: 0.0.1 there" in out


def test_missing_package_exits_with_3(ssh, doctor):
    packages = ssh.add_with_packages("node1")
    (packages / "mpi4py/__init__.py").write_text("raise ImportError('no mpi4py here')")
    status, out, _ = doctor("--hosts", "node1")
    assert status == 3
    assert out.startswith("✗ missing     node1 ")
    assert "MPI library: " in out
    assert "fix: " in out


@pytest.mark.slow
def test_json_is_the_only_output_on_stdout(ssh, doctor):
    ssh.add_with_packages("node1", "echo Welcome")
    ssh.add_with_packages("node2", torch="2.5")
    status, out, _ = doctor("--hosts", "node1,node2,nowhere", "--json")
    assert status == 3
    document = json.loads(out)
    assert list(document) == ["machine", "hosts", "differences"]
    assert {"python", "cores"} <= {finding["subject"] for finding in document["machine"]}
    first, second, lost = document["hosts"]
    assert (first["host"], first["status"]) == ("node1", "ok")
    assert first["mpi"] == "Open MPI v5.0.11"
    assert first["cores"] == len(os.sched_getaffinity(0))
    assert (lost["status"], lost["cores"]) == ("unreachable", None)
    assert lost["findings"][0]["mend"]
    assert second["torch"] == "2.5"
    assert [finding["subject"] for finding in document["differences"]] == ["torch"]


def test_json_has_gpu_names_and_facts(doctor, monkeypatch):
    card = Card("NVIDIA H200", "0000:1a:00.0", 0)
    facts = HostFacts(
        "node1", FindingStatus.OK, cores=8, gpus=HostGpus((card,) * 2, files=2, driver="580.82")
    )
    monkeypatch.setattr("spbench.cli.doctor._survey_hosts", lambda *_: [facts])
    _, out, _ = doctor("--hosts", "node1", "--json")
    (host,) = json.loads(out)["hosts"]
    assert host["gpus"] == ["NVIDIA H200", "NVIDIA H200"]
    assert host["gpu_facts"]["driver"] == "580.82"
    assert host["gpu_facts"]["cards"][1] == {
        "model": "NVIDIA H200",
        "address": "0000:1a:00.0",
        "node": 0,
        "uuid": None,
    }


def test_json_without_hosts_has_the_machine(doctor):
    status, out, _ = doctor("--json", "--np", "100000")
    document = json.loads(out)
    assert (document["hosts"], document["differences"]) == ([], [])
    missing = [finding for finding in document["machine"] if finding["status"] == "missing"]
    assert status == (3 if missing else 0)
    texts = [finding["text"] for finding in document["machine"]]
    assert any(text.startswith("100000 ranks would share") for text in texts)
    assert any(finding["subject"] == "load" for finding in document["machine"])


MPI_MEMORY = (False, "Open MPI: MPIX_Query_cuda_support says no")


def test_each_gpu_of_this_machine_has_a_line(doctor, monkeypatch, tmp_path, messages):
    for number, node in enumerate((0, 1)):
        address = f"0000:{number}a:00.0"
        for path, text in (
            (f"gpus/{address}/information", "Model: \t NVIDIA A100\n"),
            (f"pci/{address}/numa_node", f"{node}\n"),
            (f"dev/nvidia{number}", ""),
            ("ib/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("ib/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n"),
        ):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
    for name, path in (
        ("GPUS", "gpus"),
        ("PCI", "pci"),
        ("DEVICE_FILES", "dev"),
        ("ADAPTERS", "ib"),
    ):
        monkeypatch.setattr(host_facts, name, tmp_path / path)
    monkeypatch.setattr(host_facts, "read_driver_version", lambda: "550.54.15")
    monkeypatch.setattr(host_facts, "read_driver_cuda", lambda: "12.4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    library = MpiLibrary("openmpi", "Open MPI v5.0.11", "4.1.0", "2.11.0", "13.0", None, MPI_MEMORY)
    monkeypatch.setattr("spbench.launch.doctor.detect_mpi_library", lambda *_: library)
    _, out, _ = doctor("--np", "1")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    messages.check([line for line in lines if "✓ ok GPU" in line])
    assert "✓ ok torch 2.11.0, built for CUDA 13.0" in lines
    assert "✓ ok devices 2 x NVIDIA A100" in lines
    assert "✓ ok driver NVIDIA 550.54.15, takes CUDA up to 12.4" in lines
    assert f"✓ ok MPI on GPUs by way of pinned host memory: {MPI_MEMORY[1]}" in lines
    assert "✓ ok adapter mlx5_0:1 ACTIVE, 400 Gb/sec (4X NDR)" in lines
    note = lines.index(
        "! note driver driver 550.54.15 takes CUDA up to 12.4, and torch is built for CUDA 13.0, "
        "which needs driver 580.65.06 or newer"
    )
    messages.check(lines[note + 1])
    assert "! note devices CUDA_VISIBLE_DEVICES is '1', which shows 1 of 2 GPUs" in lines


def test_python_option_selects_the_interpreter(ssh, doctor):
    ssh.add_with_packages("node1", f"PATH={ssh.folder}/bin:$PATH")
    status, out, _ = doctor("--hosts", "node1", "--python", "/opt/py")
    assert status == 3
    assert "/opt/py is not there; python3" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--hosts", "a", "--hostfile", "b"], "--hostfile and --hosts both name hosts"),
        (["--hosts", "a", "--np", "2"], "--np is for this machine"),
        (["--hostfile", "/nowhere/hosts"], "/nowhere/hosts: error: cannot read the hostfile"),
        (["--hosts", "no[de"], "no[de"),
    ],
)
def test_rejects_invalid_options(doctor, args, message):
    status, out, err = doctor(*args, "--json")
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_benchmark_of_many_hosts_runs_with_40():
    args = [sys.executable, str(ROOT / "benchmarks/hosts.py"), "40"]
    process = subprocess.run(args, capture_output=True, text=True, check=False)
    assert re.match(r"40 hosts in \d+\.\d s, \d+ at once, silent for ", process.stdout), (
        process.stderr
    )
    assert "node0017     ssh: node0017: Permission denied (publickey).\n" in process.stdout
