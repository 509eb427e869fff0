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


def doctor(hosts: HostNetwork, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SPBENCH, "doctor", *words],
        env=os.environ | {"PATH": f"{hosts.bin}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


@pytest.mark.long
def test_two_hosts_tell_what_they_have_and_one_is_down(hosts: HostNetwork) -> None:
    one, two, lost = hosts.hosts
    # the second by a name that only ssh knows
    with hosts.cut_link(lost):
        done = doctor(hosts, "--hosts", f"{one.address},{two.name},{lost.address}", "--json")
    assert done.returncode == 3
    # the one that is down takes some seconds, in which nobody waits in silence
    line = r"asking hosts: \d of 3 after \d+ s(, 1 of them not well)?\n"
    assert re.fullmatch(f"({line})+", done.stderr)
    first, second, third = json.loads(done.stdout)["hosts"]
    for facts in (first, second):
        assert facts["status"] != "unreachable", facts["reason"]
        assert facts["cores"] == len(os.sched_getaffinity(0))
        assert Path(facts["interpreter"]).parent == Path(sys.executable).parent
        assert facts["mpi"]
        assert abs(facts["clock_s"]) < 0.5
    assert [first["host"], second["host"]] == [one.address, two.name]
    assert (third["status"], third["cores"]) == ("unreachable", None)
    assert third["findings"][0]["mend"]
    left = [pid for host in hosts.hosts for pid in host.pids if "spbench" in command_of(pid)]
    assert left == []


def test_an_interpreter_that_no_host_has_is_one_finding(hosts: HostNetwork, tmp_path) -> None:
    (tmp_path / "hosts").write_text(hosts.render_hostfile())
    done = doctor(hosts, "--hostfile", str(tmp_path / "hosts"), "--python", "/opt/nowhere/python")
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert [line.split()[2] for line in lines[:3]] == [host.address for host in hosts.hosts]
    assert all("cores" in line for line in lines[:3])
    assert len([line for line in lines if "/opt/nowhere/python is not there" in line]) == 1


def command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""
