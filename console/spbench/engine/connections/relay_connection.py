"""A relay's connection: the ranks of one node, each over a channel of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from spbench.engine.connections.rank_connection import (
    WELCOME,
    ConnectionOwner,
    RankConnection,
    encode_reply,
)
from spbench_core.events.fan_in import FrameDecoder, encode_frame
from spbench_core.events.fields import Event, EventError
from spbench_core.events.rank_events import HEARTBEAT_INTERVAL, MAX_HELLO

SOONER = 2.0
"""Seconds by which a silent relay is named before its ranks, which would be blamed for it."""


class Relays(ConnectionOwner, Protocol):
    """The collector, as its relays see it.

    Attributes:
        relay_silence: Seconds without a sign of life after which a relay counts as hung.
    """

    relay_silence: float

    def welcome_relay(self, relay: RelayConnection) -> None:
        """Take a connection for a relay's."""

    def forget_relay(self, relay: RelayConnection, ranks: list[RankConnection], why: str) -> None:
        """A relay is gone, with the ranks that it still carried."""


@dataclass(frozen=True, slots=True)
class _Channel:
    """The way back to a rank through its relay."""

    number: int
    send: Callable[[bytes], None]

    def write(self, data: bytes) -> None:
        self.send(encode_frame(self.number, data))

    def abort(self) -> None:
        self.send(encode_frame(self.number, b""))


class RelayConnection(asyncio.Protocol):
    """The connection of a relay that has shown the token; so must each rank behind it."""

    def __init__(self, collector: Relays, peer: str, hello: Event, rest: bytes) -> None:
        self._collector = collector
        self._peer = peer
        self._first = rest
        self._pieces = FrameDecoder()
        self._strangers: dict[int, bytes] = {}
        self._ranks: dict[int, RankConnection] = {}
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = 0.0
        self._why = "ended"
        self.host: str = hello["host"]

    def close(self) -> None:
        """End the relay, and with it its ranks."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._collector.welcome_relay(self)
        self._transport.write(encode_reply(WELCOME))
        self._heard = time.monotonic()
        self._look_again()
        if self._first:
            self.data_received(self._first)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._collector.forget_relay(self, list(self._ranks.values()), self._why)
        self._ranks.clear()

    def data_received(self, data: bytes) -> None:
        self._heard = time.monotonic()
        try:
            for number, said in self._pieces.feed(data):
                self._take(number, said)
        except EventError as error:
            self._end(f"sent what no relay sends ({error})")

    def _take(self, number: int, said: bytes) -> None:
        rank = self._ranks.get(number)
        if not said:
            self._finish(number)
        elif rank is not None:
            rank.receive(said)
        else:
            self._greet(number, said)

    def _finish(self, number: int) -> None:
        self._strangers.pop(number, None)
        rank = self._ranks.pop(number, None)
        if rank is not None:
            rank.finish()

    def _greet(self, number: int, said: bytes) -> None:
        """Let a channel in by its hello, as a connection of its own."""
        said = self._strangers.pop(number, b"") + said
        line, newline, rest = said.partition(b"\n")
        if not newline and len(said) <= MAX_HELLO:
            self._strangers[number] = said
            return
        channel = _Channel(number, self._send)
        hello = self._collector.parse_hello(line) if newline else None
        if hello is None:
            channel.abort()
            self._collector.listener.on_rejected(self._peer, "did not show the run's token")
            return
        rank = RankConnection(self._collector, channel, self._peer, hello)
        self._ranks[number] = rank
        rank.begin(hello, rest)

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # Silence

    def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HEARTBEAT_INTERVAL, self._look)

    def _look(self) -> None:
        silence = time.monotonic() - self._heard
        if silence > self._collector.relay_silence:
            self._end(f"has been silent for {silence:.0f} s")
        else:
            self._look_again()

    def _end(self, why: str) -> None:
        self._why = why
        self.close()
