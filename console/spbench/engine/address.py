"""The collector's addresses: the one it listens on, and those that ranks are told."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterable, Iterator

from spbench.launch.hosts.names import is_local

MOST = 8
"""Addresses that ranks try, at most."""
LOOPBACK = "127.0.0.1"
ANYWHERE = "192.0.2.1"
"""An address that no machine has (RFC 5737): the way to it is the default route."""
_SIOCGIFADDR = 0x8915


def bind_address(hosts: Iterable[str], *, unknown: bool = False) -> str:
    """Return loopback, or every address where a host is remote or not known."""
    return LOOPBACK if not unknown and all(map(is_local, hosts)) else "0.0.0.0"


def advertised(hosts: Iterable[str], *, unknown: bool = False) -> list[str]:
    """Return this machine's addresses as the hosts see them; loopback where all are local.

    Hosts that the launcher chooses, or that are no names but ssh's aliases, may see any of them.
    """
    facing = [_facing(host) for host in hosts if not is_local(host)]
    found = [address for address in facing if address]
    if unknown or len(found) < len(facing):
        found += _own()
    return list(dict.fromkeys(found))[:MOST] or [LOOPBACK]


def _facing(host: str) -> str | None:
    """Return the address from which this machine would reach the host; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return None


def _own() -> Iterator[str]:
    """Yield the addresses of this machine, the most likely first; loopback is none."""
    for address in (_facing(ANYWHERE), _facing(socket.gethostname()), *_of_interfaces()):
        if address and not address.startswith("127."):
            yield address


def _of_interfaces() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no IPv4 address
            yield socket.inet_ntoa(answer[20:24])
