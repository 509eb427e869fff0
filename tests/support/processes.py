"""Reads processes of this machine from /proc."""

from __future__ import annotations

from pathlib import Path

from spbench_core.events.rank_events import ENV_COLLECTOR


def list_children(pid: int) -> list[int]:
    """Return the pids of the children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def read_collector_addresses(pid: int) -> list[tuple[str, int]]:
    """Return the hosts and ports of the collector in the environment of a rank."""
    environ = Path(f"/proc/{pid}/environ").read_text().split("\0")
    variable = next(line for line in environ if line.startswith(f"{ENV_COLLECTOR}="))
    parts = [address.rpartition(":") for address in variable.partition("=")[2].split(",")]
    return [(host, int(port)) for host, _, port in parts]


def read_collector_hosts(pid: int) -> list[str]:
    """Return the hosts of the collector in the environment of a rank."""
    return [host for host, _ in read_collector_addresses(pid)]
