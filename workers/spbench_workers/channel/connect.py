"""Connections to the console: opened, authenticated by the token, and retried."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from spbench_core.events import rank_events

ATTEMPT = 1.0
"""The least seconds for one connection.

The kernel of a busy console drops requests that exceed its queue, and TCP retries them only after
1, 3 and 7 s.
"""
PAUSES = (0.05, 0.25)
"""The range of random seconds between two attempts, so that ranks do not retry at the same time."""
KEEPALIVE_INTERVAL = 5
"""Seconds of an idle connection after which the kernel probes the other host."""
RELAY_BACKLOG = 4096
"""Connections to the relay that the kernel queues."""

# The relay, if this process has started it, which runs on after its start.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class AcceptedConnection:
    """A connection that the console has accepted, and the bytes after its reply."""

    connection: socket.socket
    received: bytes


def connect_to_console(
    addresses: Sequence[str],
    hello: bytes,
    *,
    timeout_seconds: float = rank_events.CONNECT_TIMEOUT,
) -> AcceptedConnection | None:
    """Connect to the first address that answers a hello.

    The result is None if no address does within ``timeout_seconds``. A connection that has sent its
    hello is never closed while the other end keeps it: the console may only be slow, and would
    interpret the close as the end of a rank.
    """
    # An address that drops packets must leave time for the others.
    seconds_per_address = timeout_seconds / len(addresses)
    connectors = [partial(_connect_by_tcp, address, seconds_per_address) for address in addresses]
    return _retry(connectors, hello, timeout_seconds)


def connect_by_relay(
    token: str, hello: bytes, *, timeout_seconds: float = rank_events.CONNECT_TIMEOUT
) -> AcceptedConnection | None:
    """Connect to the console through this node's relay, which the first rank starts.

    The result is that of `connect_to_console`.
    """
    return _retry([partial(_connect_to_relay, make_relay_name(token))], hello, timeout_seconds)


def make_relay_name(token: str) -> str:
    """Return the abstract name of the Unix socket of a job's relay.

    The name is derived from the token, so that other users cannot take it first.
    """
    return f"\0spbench-{hashlib.sha256(token.encode()).hexdigest()[:32]}"


def _retry(
    connectors: Sequence[Callable[[], socket.socket]], hello: bytes, timeout_seconds: float
) -> AcceptedConnection | None:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        for connect in connectors:
            with suppress(OSError, ValueError):
                return _authenticate(connect(), hello)
        time.sleep(random.uniform(*PAUSES))
    return None


def _authenticate(connection: socket.socket, hello: bytes) -> AcceptedConnection:
    try:
        return AcceptedConnection(connection, _exchange_hello(connection, hello))
    except BaseException:
        connection.close()
        raise


def _connect_by_tcp(address: str, max_seconds: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    timeout = min(max_seconds, ATTEMPT * random.uniform(1.0, 1.5))
    connection = socket.create_connection((host, int(port)), timeout=timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A host that is cut off gets no reset: data that are not acknowledged end the connection.
    silence_ms = int(1000 * rank_events.SILENCE_LIMIT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_ms)
    # A rank in MPI_Init sends no data that could stay unacknowledged, so the kernel sends probes.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_INTERVAL)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL)
    return connection


def _connect_to_relay(name: str) -> socket.socket:
    """Connect to the relay; the rank that binds its name first starts it."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        try:
            connection.connect(name)
        except ConnectionRefusedError:
            _start_relay(name)
            connection.connect(name)
        if read_peer_user(connection) != os.getuid():
            raise PermissionError(errno.EPERM, "the relay is another user's")
    except OSError:
        connection.close()
        raise
    return connection


def read_peer_user(connection: socket.socket) -> int:
    """Return the user id of the process at the other end of a Unix socket."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    user: int = struct.unpack("3i", credentials)[1]
    return user


def _start_relay(name: str) -> None:
    """Start the relay on a socket that already listens.

    Raises:
        OSError: The name is taken, since another rank starts the relay.
    """
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen(RELAY_BACKLOG)
        # In a new session: a launcher that ends a rank's process group must not end the relay of
        # the other ranks. Without the launcher's pipes, because it may wait for their end.
        _started.append(
            subprocess.Popen(
                [sys.executable, "-m", "spbench_workers.relay", str(listening.fileno())],
                pass_fds=[listening.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )


def _exchange_hello(connection: socket.socket, hello: bytes) -> bytes:
    """Send hello and wait for the reply; return the bytes received after it.

    Raises:
        OSError: The other end has closed the connection, or does not answer.
        ValueError: It is not a console.
    """
    connection.settimeout(rank_events.SILENCE_LIMIT)
    connection.sendall(hello)
    received = b""
    while b"\n" not in received and len(received) <= rank_events.MAX_HELLO:
        chunk = connection.recv(1 << 12)
        if not chunk:
            raise ConnectionResetError("not let in")
        received += chunk
    line, _, remaining = received.partition(b"\n")
    reply: Any = json.loads(line)
    if reply != {"reply": "hello"}:
        raise ValueError("no console")
    connection.settimeout(None)
    return remaining
