"""Runs over several hosts: the real Open MPI, ssh and TCP, between network namespaces."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from spbench.engine.processes import find_processes
from support.cluster.hosts import HostNetwork, NamespaceHost
from support.cluster.isolated_controller import read_collector_hosts, signal_controller
from support.runs import RunProcess, RunResult, read_parent_pid

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(90),
    pytest.mark.usefixtures("console_apart"),
]

PAIRS = """
schema: spbench.suite/1
name: {name}
launch: {{bind: none, timeout: {timeout}, start_timeout: 20}}
cases:
  - name: {name}
    benchmark: link.pingpong
    np: 3
    params: {{pairs: neighbours, {params}}}
"""
LINKS = PAIRS.format(
    name="links", timeout=30, params="sizes: [8, 64KiB], iterations: 10, warmup: 1"
)
LONG = PAIRS.format(name="long", timeout=60, params="sizes: [8], iterations: 5000000")
HALO = """
schema: spbench.suite/1
name: halo
launch: {bind: none, threads: 1, timeout: 30}
cases:
  - name: halo
    benchmark: halo.exchange
    params: {image_size: 64, num_spatial_parts: 4, iterations: 3, warmup: 1}
"""


@pytest.fixture
def start(hosts: HostNetwork, tmp_path: Path):
    """Starts a suite over the first hosts of a hostfile."""
    if " " in sys.executable:
        pytest.skip(f"Open MPI cannot start ranks on other hosts from {sys.executable}")

    def start(suite: str, hostfile: str = "", *words: str) -> RunProcess:
        (tmp_path / "suite.yaml").write_text(suite)
        (tmp_path / "hostfile").write_text(hostfile or hosts.render_hostfile())
        path = f"{hosts.bin}:{os.environ['PATH']}"
        named = (str(tmp_path / "suite.yaml"), "--hostfile", str(tmp_path / "hostfile"))
        return RunProcess(*named, *words, home=tmp_path / "home", env={"PATH": path})

    return start


def seconds_until_gone(run_id: str, limit: float) -> float:
    """Wait until no host has a process of the run, and return how long it took."""
    begun = time.monotonic()
    while left := find_processes(run_id):
        assert time.monotonic() - begun < limit, f"still there: {left}"
        time.sleep(0.1)
    return time.monotonic() - begun


def assert_gone_everywhere(ended: RunResult, limit: float = 5.0) -> None:
    (run,) = (ended.home / "runs").iterdir()
    seconds_until_gone(run.name, limit)


def between(ended: RunResult) -> set[tuple[str, str]]:
    """The hosts at the two ends of each measured link."""
    return {(row["host_a"], row["host_b"]) for row in ended.report["cases"][0]["measurements"]}


def test_a_run_over_three_hosts_passes_and_names_hosts_and_links(hosts: HostNetwork, start) -> None:
    ended = start(LINKS).wait()
    assert ended.code == 0, ended.stdout + ended.stderr
    one, two, three = (host.name for host in hosts.hosts)
    (case,) = ended.report["cases"]
    assert [rank["host"] for rank in case["ranks"]] == [one, two, three]
    assert between(ended) == {(one, two), (two, three)}
    assert_gone_everywhere(ended)
    ended.assert_no_event_missing()


def test_values_reach_ranks_on_other_hosts_and_are_in_no_arguments(
    hosts: HostNetwork, start
) -> None:
    """The hosts show their processes here, with those of ssh and of Open MPI's daemons."""
    value = """s3cret; it's "so" $HOME, a=b\n2"""
    running = start(LONG, "", "--set", f"launch.env.NOTE={json.dumps(value)}").wait_for_timing()
    for rank in range(3):
        environ = Path(f"/proc/{running.find_pid(rank)}/environ").read_bytes().split(b"\0")
        assert f"NOTE={value}".encode() in environ
    shown = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            shown[path.parent.name] = path.read_bytes()
    # the console's own arguments have it, as this test gave it by --set
    assert [text for text in shown.values() if b"s3cret" in text and b"--set" not in text] == []
    signal_controller(running, signal.SIGINT)
    assert_gone_everywhere(running.wait())


@pytest.mark.long
def test_ctrl_c_ends_the_ranks_on_all_hosts(hosts: HostNetwork, start) -> None:
    running = start(LONG).wait_for_timing()
    # ranks elsewhere reach the console where this machine faces them, not on loopback
    assert read_collector_hosts(running.find_pid(1)) == [hosts.address]
    signal_controller(running, signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130
    assert ended.statuses == {"long": "cancelled"}
    assert_gone_everywhere(ended)
    ended.assert_no_event_missing()


@pytest.mark.long
def test_a_halo_exchange_passes_over_hosts_that_only_ssh_knows_by_name(
    hosts: HostNetwork, start
) -> None:
    ended = start(HALO, hosts.render_alias_hostfile(slots=2, count=2)).wait()
    assert ended.code == 0, ended.stdout + ended.stderr
    one, two = (host.name for host in hosts.hosts[:2])
    (case,) = ended.report["cases"]
    assert [rank["host"] for rank in case["ranks"]] == [one, one, two, two]
    assert [rank["local_rank"] for rank in case["ranks"]] == [0, 1, 0, 1]


@pytest.mark.long
def test_hosts_reach_the_console_by_tunnels_a_relay_each(hosts: HostNetwork, start) -> None:
    """Its collector listens on loopback alone, which is another on each host."""
    words = ("--set", "launch.tunnel=ssh", "--set", "launch.fan_in=node")
    running = start(LONG, "", *words).wait_for_timing()
    assert read_collector_hosts(running.find_pid(1)) == ["127.0.0.1"]
    signal_controller(running, signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130
    assert [rank["host"] for rank in ended.report["cases"][0]["ranks"]] == [
        host.name for host in hosts.hosts
    ]
    assert_gone_everywhere(ended)
    ended.assert_no_event_missing()


@pytest.mark.long
def test_ranks_use_the_address_that_they_are_told(hosts: HostNetwork, start) -> None:
    """The first one swallows packets; the second is this machine's, on a port of the range."""
    words = ("--console-address", f"192.0.2.1,{hosts.address}", "--port-range", "47000-47040")
    running = start(LONG, "", *words).wait_for_timing()
    assert read_collector_hosts(running.find_pid(1)) == ["192.0.2.1", hosts.address]
    signal_controller(running, signal.SIGINT)
    assert running.wait().code == 130


@pytest.mark.long
@pytest.mark.alone
def test_the_link_of_a_slow_host_is_named(hosts: HostNetwork, start) -> None:
    slow = hosts.hosts[2]
    with hosts.limit_rate(slow, "10mbit"):
        ended = start(LINKS).wait()
    assert ended.code == 0, ended.stdout + ended.stderr
    findings = ended.report["run"]["findings"]  # others are on noise: these hosts share cores
    (finding,) = (sentence for sentence in findings if sentence.startswith("link from "))
    assert f"rank 1 on {hosts.hosts[1].name} to rank 2 on {slow.name}" in finding


@pytest.mark.long
def test_a_host_that_cannot_be_reached_is_named_before_the_launch(
    hosts: HostNetwork, start
) -> None:
    nobody = hosts.address.replace(".254", ".99")
    ended = start(LINKS, f"{nobody}\n" + hosts.render_hostfile()).wait()
    assert ended.code == 3
    assert nobody in ended.stderr
    assert ended.report["cases"] == []


@pytest.mark.long
def test_a_setup_line_that_fails_on_one_host_is_told(hosts: HostNetwork, start) -> None:
    line = f"test $(hostname) != {hosts.hosts[1].name}"
    ended = start(LINKS, "", "--set", f"launch.setup=['{line}']").wait()
    assert ended.code == 4, ended.stdout + ended.stderr
    assert f"setup line failed: {line}" in ended.case("links")["reason"]
    assert_gone_everywhere(ended)


@pytest.mark.long
def test_a_rank_killed_on_another_host_is_named(hosts: HostNetwork, start) -> None:
    running = start(LONG).wait_for_timing()
    os.kill(running.find_pid(2), signal.SIGKILL)
    ended = running.wait()
    assert ended.code == 4, ended.stdout + ended.stderr
    assert f"rank 2 on {hosts.hosts[2].name}" in ended.case("long")["reason"]
    assert_gone_everywhere(ended)


@pytest.mark.long
def test_a_host_whose_ssh_session_is_killed_is_named(hosts: HostNetwork, start) -> None:
    # ssh prints the address behind the alias
    running = start(LONG, hosts.render_alias_hostfile(slots=1, count=3)).wait_for_timing()
    session = running.find_pid(1)
    while b"@notty" not in Path(f"/proc/{session}/cmdline").read_bytes():
        session = read_parent_pid(session)
    os.kill(session, signal.SIGKILL)
    ended = running.wait()
    assert ended.code == 4, ended.stdout + ended.stderr
    lost = hosts.hosts[1]
    reason = ended.case("long")["reason"]
    assert reason.startswith(f"rank 1 on {lost.name}, ")
    assert f"Connection to {lost.address} closed by remote host" in reason
    assert_gone_everywhere(ended)


def test_a_host_that_is_cut_off_is_named_and_its_rank_ends_too(hosts: HostNetwork, start) -> None:
    running = start(LONG).wait_for_timing()
    lost: NamespaceHost = hosts.hosts[2]
    with hosts.cut_link(lost):
        cut = time.monotonic()
        running.wait_for("job_end")
        ended = running.wait()
        seconds = time.monotonic() - cut
        assert ended.code == 4, ended.stdout + ended.stderr
        assert f"rank 2 on {lost.name} silent for 10 s" in ended.case("long")["reason"]
        assert seconds < 20
        assert_gone_everywhere(ended, limit=15 - min(seconds, 14))


@pytest.mark.long
def test_ranks_on_other_hosts_end_with_a_console_that_is_killed(hosts: HostNetwork, start) -> None:
    running = start(LONG).wait_for_timing()
    run_id = running.folder.name
    ranks = [running.find_pid(rank) for rank in range(3)]
    assert [pid in host.pids for pid, host in zip(ranks, hosts.hosts, strict=True)] == [True] * 3
    signal_controller(running, signal.SIGKILL)
    seconds_until_gone(run_id, 5)
    assert running.wait(limit=10).code == 256 - signal.SIGKILL
