"""The collector's addresses: the one it listens on, and those that ranks are told."""

from __future__ import annotations

import fcntl
import re
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from spbench.errors import UsageError
from spbench.launch.choice import LaunchChoice
from spbench.launch.hosts.names import is_local

MOST = 8
"""Addresses that ranks try, at most."""
MOST_PORT = 65535
LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
ANYWHERE = "192.0.2.1"
"""An address that no machine has (RFC 5737): the way to it is the default route."""
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class Way:
    """The way from the ranks to the collector.

    Attributes:
        bind: The address to listen on.
        ports: The ports to try, in order; 0 is any free one.
        told: The addresses that ranks try, in order.
        tunnels: Hosts that need a tunnel to reach them.
    """

    bind: str
    ports: Sequence[int]
    told: tuple[str, ...]
    tunnels: tuple[str, ...] = ()


def way_to_console(
    hosts: Sequence[str], chosen: LaunchChoice, tunnel: str, *, unknown: bool = False
) -> Way:
    """Return the way for ranks on these hosts; ``unknown`` are hosts that the launcher chooses.

    Raises:
        UsageError: An address or the range of ports is none, or a tunnel's hosts are not known.
    """
    ports = ports_of(chosen.port_range)
    given = addresses_of(chosen.console_address)
    if tunnel == "ssh":
        check_tunnel(tunnel, unknown=unknown)
        return Way(LOOPBACK, ports, (LOOPBACK,), tuple(h for h in hosts if not is_local(h)))
    if given:
        return Way(EVERYWHERE, ports, given)
    return Way(
        bind_address(hosts, unknown=unknown), ports, tuple(advertised(hosts, unknown=unknown))
    )


def check_tunnel(tunnel: str, *, unknown: bool) -> None:
    """Refuse tunnels to hosts that only the launcher knows.

    Raises:
        UsageError: They are ``unknown``.
    """
    if tunnel == "ssh" and unknown:
        raise UsageError("launch.tunnel: ssh needs to know the hosts; give --hostfile or --hosts")


def ports_of(text: str | None) -> Sequence[int]:
    """Return the ports of ``5000-5010``; any free one where there is no text.

    Raises:
        UsageError: It is no range of ports.
    """
    if text is None:
        return (0,)
    found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last <= MOST_PORT:
        raise UsageError(f"--port-range {text}: give two ports of 1-{MOST_PORT}, as 5000-5010")
    return range(first, last + 1)


def addresses_of(text: str | None) -> tuple[str, ...]:
    """Return the addresses of a list with commas.

    Raises:
        UsageError: One is neither a name nor an IPv4 address.
    """
    found = tuple(text.split(",")) if text is not None else ()
    for address in found:
        if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?", address):
            raise UsageError(
                f"--console-address {text}: {address!r} is no host name and no IPv4 address; the "
                "port is chosen here, or by --port-range"
            )
    return found


def bind_address(hosts: Iterable[str], *, unknown: bool = False) -> str:
    """Return loopback, or every address where a host is remote or not known."""
    return LOOPBACK if not unknown and all(map(is_local, hosts)) else EVERYWHERE


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
