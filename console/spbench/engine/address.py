"""Where the collector listens, and what the ranks are told."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from spbench.launch.placement import is_local

MOST = 8
"""Addresses that ranks try, at most."""
LOOPBACK = "127.0.0.1"


def bind_address(hosts: Iterable[str]) -> str:
    """Return loopback, or every address where a host is remote."""
    return LOOPBACK if all(map(is_local, hosts)) else "0.0.0.0"


def advertised(hosts: Iterable[str]) -> list[str]:
    """Return this machine's addresses as the hosts see them; loopback where all are local."""
    remote = [host for host in hosts if not is_local(host)]
    facing = dict.fromkeys(address for host in remote if (address := _facing(host)))
    return list(facing)[:MOST] or [LOOPBACK]


def _facing(host: str) -> str | None:
    """Return the address from which this machine would reach the host; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return None
