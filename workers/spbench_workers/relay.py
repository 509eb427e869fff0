"""A node's relay: ``python -m spbench_workers.relay FD``, started by the first rank of the node.

It carries the lines of the node's ranks to the console over one connection, and the answers back,
so that the console has a connection a node. It is a process of its own, at low priority and on any
core, so that it takes no time from a timed rank; it ends with the last of its ranks, or with the
console, and its ranks end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
import time
from typing import cast

from spbench_core.events import rank_events
from spbench_core.events.fan_in import HEARTBEAT_FRAME, FrameDecoder, encode_frame
from spbench_core.events.fields import EventError
from spbench_workers.channel import encode_event, hello_fields
from spbench_workers.connect import RELAY_BACKLOG, connect_to_console, peer_user

NICENESS = 10
GATHER = 0.02
"""Seconds for which lines are gathered, so that ranks that speak together cost one packet."""
MOST_WAITING = 1 << 20
"""Bytes that are gathered at most."""


class _Local(asyncio.Protocol):
    """A rank of this node."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._channel = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        # anyone on this host may connect to the socket's name
        if peer_user(transport.get_extra_info("socket")) == os.getuid():
            self._channel = self._relay.add(self)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._relay.send(encode_frame(self._channel, data))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._channel:
            self._relay.remove(self._channel)


class Relay(asyncio.Protocol):
    """The connection to the console, and the ranks behind it by their channels."""

    def __init__(self) -> None:
        self.finished = asyncio.Event()
        self.gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pieces = FrameDecoder()
        self._locals: dict[int, _Local] = {}
        self._last = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._sent = 0.0
        self._due: asyncio.TimerHandle | None = None
        self._console: asyncio.Transport | None = None
        self._full = False

    # Ranks

    def rank(self) -> asyncio.Protocol:
        """Return the protocol of a rank that connects."""
        return _Local(self)

    def add(self, local: _Local) -> int:
        """Give a rank its channel."""
        self._last += 1
        self._locals[self._last] = local
        if self._full and local.transport is not None:
            local.transport.pause_reading()
        return self._last

    def remove(self, channel: int) -> None:
        """Tell the console that a rank has ended; with the last of them it is all over."""
        if self._locals.pop(channel, None) is not None:
            self.send(encode_frame(channel, b""))
        if not self._locals:
            self.finished.set()

    @property
    def used(self) -> bool:
        """Whether a rank has come."""
        return self._last > 0

    # To the console

    def send(self, data: bytes) -> None:
        """Send with what else there is to send in the next moments."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= MOST_WAITING:
            # Only the transport knows that the console takes nothing, and lets the ranks wait.
            self.flush()
        elif self._due is None:
            wait = max(0.0, self._sent + GATHER - time.monotonic())
            self._due = self._loop.call_later(wait, self.flush)

    def flush(self) -> None:
        """Send what is waiting."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._sent = time.monotonic()
        if self._console is not None and self._waiting:
            self._console.write(b"".join(self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0

    def send_sign_of_life(self) -> None:
        """Give a sign of life now and again."""
        self.send(HEARTBEAT_FRAME)
        self._loop.call_later(rank_events.HEARTBEAT_INTERVAL, self.send_sign_of_life)

    def close(self) -> None:
        """Send what is left and end the connection."""
        self.flush()
        if self._console is not None:
            self._console.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._console = cast(asyncio.Transport, transport)
        self.send_sign_of_life()

    def connection_lost(self, exc: Exception | None) -> None:
        self._console = None
        for local in tuple(self._locals.values()):
            _abort(local)
        self.finished.set()
        self.gone.set()

    def pause_writing(self) -> None:
        """Let ranks wait: the console takes no more for now."""
        self._full = True
        for local in self._locals.values():
            if local.transport is not None:
                local.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the ranks again."""
        self._full = False
        for local in self._locals.values():
            if local.transport is not None:
                local.transport.resume_reading()

    # From the console

    def data_received(self, data: bytes) -> None:
        try:
            for channel, said in self._pieces.feed(data):
                self._answer(channel, said)
        except EventError:
            self.close()

    def _answer(self, channel: int, said: bytes) -> None:
        local = self._locals.get(channel)
        if local is None or local.transport is None:
            return
        if said:
            local.transport.write(said)
        else:
            _abort(local)


def _abort(local: _Local) -> None:
    if local.transport is not None:
        local.transport.abort()


async def carry_events(listening: socket.socket, console: socket.socket, rest: bytes) -> None:
    """Carry lines until the console or the last rank has gone, or none has come."""
    loop = asyncio.get_running_loop()
    relay = Relay()
    await loop.connect_accepted_socket(lambda: relay, console)
    if rest:
        relay.data_received(rest)
    server = await loop.create_unix_server(relay.rank, sock=listening, backlog=RELAY_BACKLOG)
    loop.call_later(
        rank_events.CONNECT_TIMEOUT, lambda: None if relay.used else relay.finished.set()
    )
    await relay.finished.wait()
    server.close()
    relay.close()
    await asyncio.wait_for(relay.gone.wait(), rank_events.SILENCE_LIMIT)


def detach_from_ranks() -> None:
    """Take any core, not only those of one rank, and as many files as are allowed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Serve the node whose ranks connect to the socket that was inherited."""
    detach_from_ranks()
    listening = socket.socket(fileno=int(sys.argv[1]))
    addresses = os.environ[rank_events.ENV_COLLECTOR].split(",")
    _, fields = hello_fields(os.environ)
    let_in = connect_to_console(addresses, encode_event("hello", None, 0, fields | {"relay": True}))
    # From here on the cores are the ranks'; before, all of them wait for it.
    os.nice(NICENESS)
    if let_in is not None:
        let_in.connection.setblocking(False)
        asyncio.run(carry_events(listening, let_in.connection, let_in.received))


if __name__ == "__main__":
    main()
