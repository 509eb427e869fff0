"""The endpoint of the collector: its address, and the ones that ranks try."""

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

MAX_ADDRESSES = 8
"""The number of addresses that ranks try."""
MAX_PORT = 65535
LOOPBACK = "127.0.0.1"
ALL_INTERFACES = "0.0.0.0"
UNROUTED_ADDRESS = "192.0.2.1"
"""An address that no machine has (RFC 5737), so that the default route leads to it."""
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class CollectorEndpoint:
    """The address and the ports of the collector, and the ways of ranks to it.

    Attributes:
        bind_address: The address to listen on.
        ports: The ports to try, in order; 0 is any free port.
        advertised_addresses: The addresses that ranks try, in order.
        tunnel_hosts: Hosts from which ranks reach the collector through an ssh tunnel.
    """

    bind_address: str
    ports: Sequence[int]
    advertised_addresses: tuple[str, ...]
    tunnel_hosts: tuple[str, ...] = ()


def resolve_endpoint(
    hosts: Sequence[str], choice: LaunchChoice, tunnel: str, *, has_unknown_hosts: bool = False
) -> CollectorEndpoint:
    """Return the endpoint for ranks on these hosts.

    ``has_unknown_hosts`` means that the launcher chooses further hosts.

    Raises:
        UsageError: An address or the range of ports is invalid, or hosts of tunnels are unknown.
    """
    ports = parse_ports(choice.port_range)
    addresses = parse_addresses(choice.console_address)
    if tunnel == "ssh":
        check_tunnel(tunnel, has_unknown_hosts=has_unknown_hosts)
        remote = tuple(host for host in hosts if not is_local(host))
        return CollectorEndpoint(LOOPBACK, ports, (LOOPBACK,), remote)
    if addresses:
        return CollectorEndpoint(ALL_INTERFACES, ports, addresses)
    return CollectorEndpoint(
        choose_bind_address(hosts, has_unknown_hosts=has_unknown_hosts),
        ports,
        tuple(find_advertised_addresses(hosts, has_unknown_hosts=has_unknown_hosts)),
    )


def check_tunnel(tunnel: str, *, has_unknown_hosts: bool) -> None:
    """Reject tunnels to hosts that only the launcher knows.

    Raises:
        UsageError: The tunnel is ``ssh``, and there are unknown hosts.
    """
    if tunnel == "ssh" and has_unknown_hosts:
        raise UsageError("launch.tunnel: ssh needs to know the hosts; give --hostfile or --hosts")


def parse_ports(text: str | None) -> Sequence[int]:
    """Return the ports of ``5000-5010``; any free port without a text.

    Raises:
        UsageError: The text is not a range of ports.
    """
    if text is None:
        return (0,)
    match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text)
    first_port, last_port = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first_port <= last_port <= MAX_PORT:
        raise UsageError(f"--port-range {text}: give two ports of 1-{MAX_PORT}, as 5000-5010")
    return range(first_port, last_port + 1)


def parse_addresses(text: str | None) -> tuple[str, ...]:
    """Return the addresses of a list with commas.

    Raises:
        UsageError: One of them is neither a host name nor an IPv4 address.
    """
    addresses = tuple(text.split(",")) if text is not None else ()
    for address in addresses:
        if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?", address):
            raise UsageError(
                f"--console-address {text}: {address!r} is no host name and no IPv4 address; the "
                "port is chosen here, or by --port-range"
            )
    return addresses


def choose_bind_address(hosts: Iterable[str], *, has_unknown_hosts: bool = False) -> str:
    """Return loopback, or all interfaces if a host is remote or unknown."""
    return LOOPBACK if not has_unknown_hosts and all(map(is_local, hosts)) else ALL_INTERFACES


def find_advertised_addresses(
    hosts: Iterable[str], *, has_unknown_hosts: bool = False
) -> list[str]:
    """Return this machine's addresses as hosts see them; loopback if all are local.

    Unknown hosts, and hosts with only an alias in ssh's configuration, may see any of them.
    """
    local_addresses = [_find_local_address(host) for host in hosts if not is_local(host)]
    addresses = [address for address in local_addresses if address]
    if has_unknown_hosts or len(addresses) < len(local_addresses):
        addresses += _find_own_addresses()
    return list(dict.fromkeys(addresses))[:MAX_ADDRESSES] or [LOOPBACK]


def _find_local_address(host: str) -> str | None:
    """Return the address from which this machine reaches a host, or None."""
    try:
        # connecting a datagram socket chooses a route but sends nothing
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return None


def _find_own_addresses() -> Iterator[str]:
    """Yield the addresses of this machine except loopback, the most likely first."""
    by_route = (_find_local_address(UNROUTED_ADDRESS), _find_local_address(socket.gethostname()))
    for address in (*by_route, *_list_interface_addresses()):
        if address and not address.startswith("127."):
            yield address


def _list_interface_addresses() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no IPv4 address
            yield socket.inet_ntoa(answer[20:24])
