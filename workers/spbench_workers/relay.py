"""A node's relay: ``python -m spbench_workers.relay FD``.

The node's first rank starts it.

It forwards the lines of the node's ranks to the console over one connection, and the replies back,
so that the console has one connection per node. It is a separate process with low priority on any
core, so that it takes no time from a timed rank. It ends with the last of its ranks, or with the
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
from spbench_workers.channel.base import encode_event
from spbench_workers.channel.connect import RELAY_BACKLOG, connect_to_console, read_peer_user
from spbench_workers.channel.opening import make_hello_fields

NICENESS = 10
"""The niceness of the relay, so that timed ranks have priority."""
GATHER_SECONDS = 0.02
"""Seconds for which lines are gathered, so that simultaneous lines of ranks cost one packet."""
MAX_WAITING_BYTES = 1 << 20
"""Bytes that are gathered at most."""


class _RankProtocol(asyncio.Protocol):
    """The connection of a rank of this node."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._channel = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        # Any user of this host may connect to the socket's name.
        if read_peer_user(transport.get_extra_info("socket")) == os.getuid():
            self._channel = self._relay.add(self)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._relay.send(encode_frame(self._channel, data))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._channel:
            self._relay.remove(self._channel)


class Relay(asyncio.Protocol):
    """The connection to the console, and the ranks behind it by their channels.

    Args:
        gather_seconds: Seconds for which lines are gathered.
    """

    def __init__(self, gather_seconds: float = GATHER_SECONDS) -> None:
        self._gather_seconds = gather_seconds
        self.finished = asyncio.Event()
        self.disconnected = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder()
        self._protocols_by_channel: dict[int, _RankProtocol] = {}
        self._last_channel = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._last_flush = 0.0
        self._flush_timer: asyncio.TimerHandle | None = None
        self._console: asyncio.Transport | None = None
        self._paused = False

    def create_rank_protocol(self) -> asyncio.Protocol:
        """Return the protocol of a connecting rank."""
        return _RankProtocol(self)

    def add(self, protocol: _RankProtocol) -> int:
        """Assign a channel to a rank."""
        self._last_channel += 1
        self._protocols_by_channel[self._last_channel] = protocol
        if self._paused and protocol.transport is not None:
            protocol.transport.pause_reading()
        return self._last_channel

    def remove(self, channel: int) -> None:
        """Report the end of a rank to the console; finish after the last one."""
        if self._protocols_by_channel.pop(channel, None) is not None:
            self.send(encode_frame(channel, b""))
        if not self._protocols_by_channel:
            self.finished.set()

    @property
    def was_used(self) -> bool:
        """Whether a rank has connected."""
        return self._last_channel > 0

    def send(self, data: bytes) -> None:
        """Send data together with other data of the next moments."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= MAX_WAITING_BYTES:
            # The transport then detects if the console does not read, and pauses the ranks.
            self.flush()
        elif self._flush_timer is None:
            wait = max(0.0, self._last_flush + self._gather_seconds - time.monotonic())
            self._flush_timer = self._loop.call_later(wait, self.flush)

    def flush(self) -> None:
        """Send all gathered data."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self._last_flush = time.monotonic()
        if self._console is not None and self._waiting:
            self._console.write(b"".join(self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0

    def send_sign_of_life(self) -> None:
        """Send a sign of life per heartbeat interval."""
        self.send(HEARTBEAT_FRAME)
        self._loop.call_later(rank_events.HEARTBEAT_INTERVAL, self.send_sign_of_life)

    def close(self) -> None:
        """Send the remaining data and end the connection."""
        self.flush()
        if self._console is not None:
            self._console.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._console = cast(asyncio.Transport, transport)
        self.send_sign_of_life()

    def connection_lost(self, exc: Exception | None) -> None:
        self._console = None
        for protocol in tuple(self._protocols_by_channel.values()):
            _abort(protocol)
        self.finished.set()
        self.disconnected.set()

    def pause_writing(self) -> None:
        """Stop reading from ranks, because the console does not read."""
        self._paused = True
        for protocol in self._protocols_by_channel.values():
            if protocol.transport is not None:
                protocol.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the ranks again."""
        self._paused = False
        for protocol in self._protocols_by_channel.values():
            if protocol.transport is not None:
                protocol.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        try:
            for channel, reply in self._decoder.feed(data):
                self._forward_reply(channel, reply)
        except EventError:
            self.close()

    def _forward_reply(self, channel: int, reply: bytes) -> None:
        protocol = self._protocols_by_channel.get(channel)
        if protocol is None or protocol.transport is None:
            return
        if reply:
            protocol.transport.write(reply)
        else:
            _abort(protocol)


def _abort(protocol: _RankProtocol) -> None:
    if protocol.transport is not None:
        protocol.transport.abort()


async def carry_events(
    listening: socket.socket,
    console: socket.socket,
    received: bytes,
    *,
    gather_seconds: float = GATHER_SECONDS,
) -> None:
    """Forward lines until the console or the last rank has ended.

    It also ends if no rank connects.
    """
    loop = asyncio.get_running_loop()
    relay = Relay(gather_seconds)
    await loop.connect_accepted_socket(lambda: relay, console)
    if received:
        relay.data_received(received)
    server = await loop.create_unix_server(
        relay.create_rank_protocol, sock=listening, backlog=RELAY_BACKLOG
    )
    loop.call_later(
        rank_events.CONNECT_TIMEOUT, lambda: None if relay.was_used else relay.finished.set()
    )
    await relay.finished.wait()
    server.close()
    relay.close()
    await asyncio.wait_for(relay.disconnected.wait(), rank_events.SILENCE_LIMIT)


def detach_from_ranks() -> None:
    """Allow all cores and the largest number of open files.

    SIGINT, which launchers send to ranks, is ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Serve the ranks that connect to the inherited socket."""
    detach_from_ranks()
    listening = socket.socket(fileno=int(sys.argv[1]))
    addresses = os.environ[rank_events.ENV_COLLECTOR].split(",")
    _, fields = make_hello_fields(os.environ)
    admission = connect_to_console(
        addresses, encode_event("hello", None, 0, fields | {"relay": True})
    )
    # Only now: until the relay is connected, all ranks wait for it.
    os.nice(NICENESS)
    if admission is not None:
        admission.connection.setblocking(False)
        asyncio.run(carry_events(listening, admission.connection, admission.received))


if __name__ == "__main__":
    main()
