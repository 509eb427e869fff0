"""The way to the console: connected, and let in by the token, or tried again."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spbench_core.events import rank_events

ATTEMPT = 1.0
"""Seconds for one connection, at least: a busy console's kernel drops what it has no room for, and
asks to be asked again only after 1, 3 and 7 s."""
PAUSES = (0.05, 0.25)
"""Seconds between two attempts, drawn at random: ranks that start together come back apart."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A connection that the console has let in, and what it has sent since."""

    connection: socket.socket
    rest: bytes


def admitted(addresses: Sequence[str], hello: bytes) -> Admitted | None:
    """Connect to the first address that answers a hello, within CONNECT_TIMEOUT; None is nobody.

    A connection that has sent its hello is never given up while the other end holds it: the
    console may only be slow, and would take its end for the end of a rank.
    """
    deadline = time.monotonic() + rank_events.CONNECT_TIMEOUT
    # an address that swallows packets must leave time for the others
    share = rank_events.CONNECT_TIMEOUT / len(addresses)
    while time.monotonic() < deadline:
        for address in addresses:
            patience = min(share, ATTEMPT * random.uniform(1.0, 1.5))
            found = _let_in(address, hello, patience)
            if found is not None:
                return found
        time.sleep(random.uniform(*PAUSES))
    return None


def _let_in(address: str, hello: bytes, patience: float) -> Admitted | None:
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host, int(port)), timeout=patience)
    except OSError:
        return None
    try:
        return Admitted(connection, _greeted(connection, hello))
    except (OSError, ValueError):
        connection.close()
        return None


def _greeted(connection: socket.socket, hello: bytes) -> bytes:
    """Say hello and wait for its answer; return what has come after it.

    Raises:
        OSError: The other end has gone, or does not answer.
        ValueError: It is no console.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # a host that is cut off gets no reset: what is not acknowledged ends the connection
    silence = int(1000 * rank_events.SILENCE_LIMIT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence)
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
