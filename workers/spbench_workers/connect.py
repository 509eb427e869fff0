"""The way to the console: connected, and let in by the token, or tried again."""

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
"""Seconds for one connection, at least: a busy console's kernel drops what it has no room for, and
asks to be asked again only after 1, 3 and 7 s."""
PAUSES = (0.05, 0.25)
"""Seconds between two attempts, drawn at random: ranks that start together come back apart."""
KEEPALIVE_INTERVAL = 5
"""Seconds of an idle connection after which the kernel asks whether the other host is there."""
RELAY_BACKLOG = 4096

_started: list[subprocess.Popen[bytes]] = []
"""The relay, where this process has started it; kept, since it goes on."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A connection that the console has let in, and what it has sent since."""

    connection: socket.socket
    received: bytes


def connect_to_console(addresses: Sequence[str], hello: bytes) -> Admission | None:
    """Connect to the first address that answers a hello, within CONNECT_TIMEOUT.

    None is nobody.

    A connection that has sent its hello is never given up while the other end holds it: the
    console may only be slow, and would take its end for the end of a rank.
    """
    # an address that swallows packets must leave time for the others
    share = rank_events.CONNECT_TIMEOUT / len(addresses)
    return _tried([partial(_by_tcp, address, share) for address in addresses], hello)


def connect_by_relay(token: str, hello: bytes) -> Admission | None:
    """Connect to the console by this node's relay, as `admitted`.

    The first rank starts it.
    """
    return _tried([partial(_by_relay, relay_name(token))], hello)


def relay_name(token: str) -> str:
    """Return the name of the socket of a job's relay, in the kernel's own name space: no file.

    Who does not know the token cannot take the name first.
    """
    return f"\0spbench-{hashlib.sha256(token.encode()).hexdigest()[:32]}"


def _tried(ways: Sequence[Callable[[], socket.socket]], hello: bytes) -> Admission | None:
    deadline = time.monotonic() + rank_events.CONNECT_TIMEOUT
    while time.monotonic() < deadline:
        for connect in ways:
            with suppress(OSError, ValueError):
                return _let_in(connect(), hello)
        time.sleep(random.uniform(*PAUSES))
    return None


def _let_in(connection: socket.socket, hello: bytes) -> Admission:
    try:
        return Admission(connection, _greeted(connection, hello))
    except BaseException:
        connection.close()
        raise


def _by_tcp(address: str, share: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    patience = min(share, ATTEMPT * random.uniform(1.0, 1.5))
    connection = socket.create_connection((host, int(port)), timeout=patience)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # a host that is cut off gets no reset: what is not acknowledged ends the connection
    silence = int(1000 * rank_events.SILENCE_LIMIT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence)
    # A rank in MPI_Init sends nothing that could stay unacknowledged.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_INTERVAL)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL)
    return connection


def _by_relay(name: str) -> socket.socket:
    """Connect to the relay.

    The rank that gets its name first starts it, then connects too.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        try:
            connection.connect(name)
        except ConnectionRefusedError:
            _start_relay(name)
            connection.connect(name)
        if peer_user(connection) != os.getuid():
            raise PermissionError(errno.EPERM, "the relay is another user's")
    except OSError:
        connection.close()
        raise
    return connection


def peer_user(connection: socket.socket) -> int:
    """Return the user whose process is at the other end of a Unix socket."""
    size = struct.calcsize("3i")
    asked = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    user: int = struct.unpack("3i", asked)[1]
    return user


def _start_relay(name: str) -> None:
    """Start the relay on a socket that listens already.

    Who comes second finds the name taken.

    Raises:
        OSError: The name is taken.
    """
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen(RELAY_BACKLOG)
        # A session of its own: a launcher that ends a rank's group leaves it to the other ranks.
        # None of the launcher's pipes, at whose end the launcher may wait.
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


def _greeted(connection: socket.socket, hello: bytes) -> bytes:
    """Say hello and wait for its answer; return what has come after it.

    Raises:
        OSError: The other end has gone, or does not answer.
        ValueError: It is no console.
    """
    connection.settimeout(rank_events.SILENCE_LIMIT)
    connection.sendall(hello)
    said = b""
    while b"\n" not in said and len(said) <= rank_events.MAX_HELLO:
        data = connection.recv(1 << 12)
        if not data:
            raise ConnectionResetError("not let in")
        said += data
    line, _, rest = said.partition(b"\n")
    answer: Any = json.loads(line)
    if answer != {"reply": "hello"}:
        raise ValueError("no console")
    connection.settimeout(None)
    return rest
