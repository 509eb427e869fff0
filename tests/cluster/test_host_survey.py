"""Facts of hosts over the real ssh and sshd."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.cluster.hosts import HostNetwork
from support.runs import SPBENCH

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


def run_doctor(hosts: HostNetwork, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SPBENCH, "doctor", *arguments],
        env=os.environ | {"PATH": f"{hosts.bin}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


@pytest.mark.long
def test_survey_reports_two_hosts_and_an_unreachable_one(hosts: HostNetwork) -> None:
    first_host, second_host, lost_host = hosts.hosts
    # The second host has a name that only ssh resolves.
    with hosts.cut_link(lost_host):
        process = run_doctor(
            hosts,
            "--hosts",
            f"{first_host.address},{second_host.name},{lost_host.address}",
            "--json",
        )
    assert process.returncode == 3
    # The unreachable host takes some seconds, in which the command reports its progress.
    line = r"asking hosts: \d of 3 after \d+ s(, 1 of them not well)?\n"
    assert re.fullmatch(f"({line})+", process.stderr)
    first_facts, second_facts, third_facts = json.loads(process.stdout)["hosts"]
    for facts in (first_facts, second_facts):
        assert facts["status"] != "unreachable", facts["reason"]
        assert facts["cores"] == len(os.sched_getaffinity(0))
        assert Path(facts["interpreter"]).parent == Path(sys.executable).parent
        assert facts["mpi"]
        assert abs(facts["clock_s"]) < 0.5
    assert [first_facts["host"], second_facts["host"]] == [first_host.address, second_host.name]
    assert (third_facts["status"], third_facts["cores"]) == ("unreachable", None)
    assert third_facts["findings"][0]["mend"]
    leftover_pids = [
        pid for host in hosts.hosts for pid in host.pids if "spbench" in read_command_line(pid)
    ]
    assert leftover_pids == []


def test_an_interpreter_missing_everywhere_is_one_finding(hosts: HostNetwork, tmp_path) -> None:
    (tmp_path / "hosts").write_text(hosts.render_hostfile())
    process = run_doctor(
        hosts, "--hostfile", str(tmp_path / "hosts"), "--python", "/opt/nowhere/python"
    )
    assert process.returncode == 3
    lines = process.stdout.splitlines()
    assert [line.split()[2] for line in lines[:3]] == [host.address for host in hosts.hosts]
    assert all("cores" in line for line in lines[:3])
    assert len([line for line in lines if "/opt/nowhere/python is not there" in line]) == 1


def read_command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""
