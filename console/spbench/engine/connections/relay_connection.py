"""A relay's connection: the ranks of one node, each on its own channel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from spbench.engine.connections.rank_connection import (
    WELCOME,
    RankConnection,
    RankOwner,
    encode_reply,
)
from spbench_core.events.fan_in import FrameDecoder, encode_frame
from spbench_core.events.fields import Event, EventError
from spbench_core.events.rank_events import HEARTBEAT_INTERVAL, MAX_HELLO

RELAY_LEAD = 2.0
"""Seconds by which a silent relay is reported before its ranks, which would be blamed instead."""


class RelayOwner(RankOwner, Protocol):
    """The part of the collector that connections of relays use.

    Attributes:
        relay_silence_timeout: Seconds without a sign of life after which a relay counts as hung.
    """

    relay_silence_timeout: float

    def add_relay(self, relay: RelayConnection) -> None:
        """Add the connection of a relay."""

    def remove_relay(
        self, relay: RelayConnection, ranks: list[RankConnection], reason: str
    ) -> None:
        """Remove a relay that has ended, and its remaining ranks."""


@dataclass(frozen=True, slots=True)
class _Channel:
    """The channel on which replies to a rank are sent through its relay."""

    number: int
    send: Callable[[bytes], None]

    def write(self, data: bytes) -> None:
        self.send(encode_frame(self.number, data))

    def abort(self) -> None:
        self.send(encode_frame(self.number, b""))


class RelayConnection(asyncio.Protocol):
    """The connection of a relay that has shown the token.

    Each rank behind it must show it as well.
    """

    def __init__(self, collector: RelayOwner, peer: str, hello: Event, remainder: bytes) -> None:
        self._collector = collector
        self._peer = peer
        self._remainder = remainder
        self._decoder = FrameDecoder()
        self._pending: dict[int, bytes] = {}
        self._ranks: dict[int, RankConnection] = {}
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_heard = 0.0
        self._end_reason = "ended"
        self.host: str = hello["host"]

    def close(self) -> None:
        """End the relay, and with it its ranks."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._collector.add_relay(self)
        self._transport.write(encode_reply(WELCOME))
        self._last_heard = time.monotonic()
        self._schedule_check()
        if self._remainder:
            self.data_received(self._remainder)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._collector.remove_relay(self, list(self._ranks.values()), self._end_reason)
        self._ranks.clear()

    def data_received(self, data: bytes) -> None:
        self._last_heard = time.monotonic()
        try:
            for number, payload in self._decoder.feed(data):
                self._receive(number, payload)
        except EventError as error:
            self._end(f"sent what no relay sends ({error})")

    def _receive(self, number: int, data: bytes) -> None:
        rank = self._ranks.get(number)
        if not data:
            self._finish(number)
        elif rank is not None:
            rank.receive(data)
        else:
            self._admit(number, data)

    def _finish(self, number: int) -> None:
        self._pending.pop(number, None)
        rank = self._ranks.pop(number, None)
        if rank is not None:
            rank.finish()

    def _admit(self, number: int, data: bytes) -> None:
        """Admit a rank by the hello on its channel, like a direct connection."""
        data = self._pending.pop(number, b"") + data
        line, newline, remainder = data.partition(b"\n")
        if not newline and len(data) <= MAX_HELLO:
            self._pending[number] = data
            return
        channel = _Channel(number, self._send)
        hello = self._collector.parse_hello(line) if newline else None
        if hello is None:
            channel.abort()
            self._collector.listener.on_rejected(self._peer, "did not show the run's token")
            return
        rank = RankConnection(self._collector, channel, self._peer, hello)
        self._ranks[number] = rank
        rank.begin(hello, remainder)

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _schedule_check(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HEARTBEAT_INTERVAL, self._check_silence)

    def _check_silence(self) -> None:
        silence = time.monotonic() - self._last_heard
        if silence > self._collector.relay_silence_timeout:
            self._end(f"has been silent for {silence:.0f} s")
        else:
            self._schedule_check()

    def _end(self, reason: str) -> None:
        self._end_reason = reason
        self.close()
