"""Runs on several hosts: real Open MPI, ssh and TCP between network namespaces."""

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
from support.cluster.isolated_controller import signal_controller
from support.processes import read_collector_hosts
from support.runs import RunProcess, RunResult, read_parent_pid

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(90),
    pytest.mark.usefixtures("isolated_controller"),
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
    """Return a function that starts a suite on the first hosts of a hostfile."""
    if " " in sys.executable:
        pytest.skip(f"Open MPI cannot start ranks on other hosts from {sys.executable}")

    def start(suite: str, hostfile: str = "", *arguments: str) -> RunProcess:
        (tmp_path / "suite.yaml").write_text(suite)
        (tmp_path / "hostfile").write_text(hostfile or hosts.render_hostfile())
        path = f"{hosts.bin}:{os.environ['PATH']}"
        files = (str(tmp_path / "suite.yaml"), "--hostfile", str(tmp_path / "hostfile"))
        return RunProcess(*files, *arguments, home=tmp_path / "home", env={"PATH": path})

    return start


def wait_for_no_process(run_id: str, limit: float) -> float:
    """Wait until no host has a process of the run, and return the seconds."""
    start_time = time.monotonic()
    while pids := find_processes(run_id):
        assert time.monotonic() - start_time < limit, f"still there: {pids}"
        time.sleep(0.1)
    return time.monotonic() - start_time


def assert_no_process_on_any_host(result: RunResult, limit: float = 5.0) -> None:
    (folder,) = (result.home / "runs").iterdir()
    wait_for_no_process(folder.name, limit)


def list_links(result: RunResult) -> set[tuple[str, str]]:
    """Return the hosts at the two ends of each measured link."""
    return {(row["host_a"], row["host_b"]) for row in result.report["cases"][0]["measurements"]}


def test_report_names_the_hosts_and_links_of_three_hosts(hosts: HostNetwork, start) -> None:
    result = start(LINKS).wait()
    assert result.code == 0, result.stdout + result.stderr
    first, second, third = (host.name for host in hosts.hosts)
    (case,) = result.report["cases"]
    assert [rank["host"] for rank in case["ranks"]] == [first, second, third]
    assert list_links(result) == {(first, second), (second, third)}
    assert_no_process_on_any_host(result)
    result.assert_no_event_missing()


def test_variables_reach_other_hosts_but_not_their_arguments(hosts: HostNetwork, start) -> None:
    """The processes of the hosts, of ssh and of Open MPI's daemons are visible here."""
    value = """s3cret; it's "so" $HOME, a=b\n2"""
    run = start(LONG, "", "--set", f"launch.env.NOTE={json.dumps(value)}").wait_for_timing()
    for rank in range(3):
        environ = Path(f"/proc/{run.find_pid(rank)}/environ").read_bytes().split(b"\0")
        assert f"NOTE={value}".encode() in environ
    command_lines = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command_lines[path.parent.name] = path.read_bytes()
    # The arguments of the controller have it, because this test sets it with --set.
    assert [
        text for text in command_lines.values() if b"s3cret" in text and b"--set" not in text
    ] == []
    signal_controller(run, signal.SIGINT)
    assert_no_process_on_any_host(run.wait())


@pytest.mark.long
def test_ctrl_c_ends_the_ranks_on_all_hosts(hosts: HostNetwork, start) -> None:
    run = start(LONG).wait_for_timing()
    # Ranks on other hosts reach the controller at the address of the bridge, not on loopback.
    assert read_collector_hosts(run.find_pid(1)) == [hosts.address]
    signal_controller(run, signal.SIGINT)
    result = run.wait()
    assert result.code == 130
    assert result.statuses == {"long": "cancelled"}
    assert_no_process_on_any_host(result)
    result.assert_no_event_missing()


@pytest.mark.long
def test_halo_exchange_passes_on_hosts_with_ssh_aliases(hosts: HostNetwork, start) -> None:
    result = start(HALO, hosts.render_alias_hostfile(slots=2, count=2)).wait()
    assert result.code == 0, result.stdout + result.stderr
    first, second = (host.name for host in hosts.hosts[:2])
    (case,) = result.report["cases"]
    assert [rank["host"] for rank in case["ranks"]] == [first, first, second, second]
    assert [rank["local_rank"] for rank in case["ranks"]] == [0, 1, 0, 1]


@pytest.mark.long
def test_each_host_connects_by_a_tunnel_with_a_relay(hosts: HostNetwork, start) -> None:
    """The collector listens on loopback only, and each host has its own loopback."""
    options = ("--set", "launch.tunnel=ssh", "--set", "launch.fan_in=node")
    run = start(LONG, "", *options).wait_for_timing()
    assert read_collector_hosts(run.find_pid(1)) == ["127.0.0.1"]
    signal_controller(run, signal.SIGINT)
    result = run.wait()
    assert result.code == 130
    assert [rank["host"] for rank in result.report["cases"][0]["ranks"]] == [
        host.name for host in hosts.hosts
    ]
    assert_no_process_on_any_host(result)
    result.assert_no_event_missing()


@pytest.mark.long
def test_ranks_use_the_console_address_option(hosts: HostNetwork, start) -> None:
    """The first address drops packets; the second is that of this machine."""
    options = ("--console-address", f"192.0.2.1,{hosts.address}", "--port-range", "47000-47040")
    run = start(LONG, "", *options).wait_for_timing()
    assert read_collector_hosts(run.find_pid(1)) == ["192.0.2.1", hosts.address]
    signal_controller(run, signal.SIGINT)
    assert run.wait().code == 130


@pytest.mark.long
@pytest.mark.alone
def test_finding_names_the_link_of_a_slow_host(hosts: HostNetwork, start) -> None:
    slow = hosts.hosts[2]
    with hosts.limit_rate(slow, "10mbit"):
        result = start(LINKS).wait()
    assert result.code == 0, result.stdout + result.stderr
    findings = result.report["run"]["findings"]  # others report noise, because hosts share cores
    (finding,) = (text for text in findings if text.startswith("link from "))
    assert f"rank 1 on {hosts.hosts[1].name} to rank 2 on {slow.name}" in finding


@pytest.mark.long
def test_unreachable_host_is_reported_before_the_launch(hosts: HostNetwork, start) -> None:
    unused_address = hosts.address.replace(".254", ".99")
    result = start(LINKS, f"{unused_address}\n" + hosts.render_hostfile()).wait()
    assert result.code == 3
    assert unused_address in result.stderr
    assert result.report["cases"] == []


@pytest.mark.long
def test_reports_a_setup_line_that_fails_on_one_host(hosts: HostNetwork, start) -> None:
    line = f"test $(hostname) != {hosts.hosts[1].name}"
    result = start(LINKS, "", "--set", f"launch.setup=['{line}']").wait()
    assert result.code == 4, result.stdout + result.stderr
    assert f"setup line failed: {line}" in result.case("links")["reason"]
    assert_no_process_on_any_host(result)


@pytest.mark.long
def test_reports_a_rank_that_is_killed_on_another_host(hosts: HostNetwork, start) -> None:
    run = start(LONG).wait_for_timing()
    os.kill(run.find_pid(2), signal.SIGKILL)
    result = run.wait()
    assert result.code == 4, result.stdout + result.stderr
    assert f"rank 2 on {hosts.hosts[2].name}" in result.case("long")["reason"]
    assert_no_process_on_any_host(result)


@pytest.mark.long
def test_reports_a_host_after_its_ssh_session_is_killed(hosts: HostNetwork, start) -> None:
    # ssh prints the address of the alias
    run = start(LONG, hosts.render_alias_hostfile(slots=1, count=3)).wait_for_timing()
    session = run.find_pid(1)
    while b"@notty" not in Path(f"/proc/{session}/cmdline").read_bytes():
        session = read_parent_pid(session)
    os.kill(session, signal.SIGKILL)
    result = run.wait()
    assert result.code == 4, result.stdout + result.stderr
    lost_host = hosts.hosts[1]
    reason = result.case("long")["reason"]
    assert reason.startswith(f"rank 1 on {lost_host.name}, ")
    assert f"Connection to {lost_host.address} closed by remote host" in reason
    assert_no_process_on_any_host(result)


@pytest.mark.long
def test_reports_a_disconnected_host_and_ends_its_rank(hosts: HostNetwork, start) -> None:
    run = start(LONG).wait_for_timing()
    lost_host: NamespaceHost = hosts.hosts[2]
    with hosts.cut_link(lost_host):
        cut = time.monotonic()
        run.wait_for("job_end")
        result = run.wait()
        seconds = time.monotonic() - cut
        assert result.code == 4, result.stdout + result.stderr
        assert f"rank 2 on {lost_host.name} silent for 10 s" in result.case("long")["reason"]
        assert seconds < 20
        assert_no_process_on_any_host(result, limit=15 - min(seconds, 14))


@pytest.mark.long
def test_ranks_on_other_hosts_end_with_a_killed_controller(hosts: HostNetwork, start) -> None:
    run = start(LONG).wait_for_timing()
    run_id = run.folder.name
    ranks = [run.find_pid(rank) for rank in range(3)]
    assert [pid in host.pids for pid, host in zip(ranks, hosts.hosts, strict=True)] == [True] * 3
    signal_controller(run, signal.SIGKILL)
    wait_for_no_process(run_id, 5)
    assert run.wait(limit=10).code == 256 - signal.SIGKILL
