"""The collector: takes the ranks' connections, checks every line, hands events on in batches.

What comes without the token is dropped: garbage, a wrong token, a line that never ends, a
connection that says nothing. Memory stays bounded: a connection holds at most one unfinished
line, and events are written before more is read.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from spbench_core.events.fields import EventError
from spbench_core.events.rank_events import (
    CONNECT_TIMEOUT,
    MAX_HELLO,
    MAX_LINE,
    decode,
)

MAX_STRANGERS = 128
"""Connections without a token that are kept at once; of more, the oldest go."""
BACKLOG = 1024

Event = dict[str, Any]


class Listener(Protocol):
    """The receiver of the events of one job."""

    def on_events(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Take a batch of one rank's events, and the lines they came in."""

    def on_violation(self, source: RankConnection, why: str) -> None:
        """A rank with the right token broke the protocol."""

    def on_lost(self, source: RankConnection) -> None:
        """A rank's connection has ended."""

    def on_stranger(self, peer: str, why: str) -> None:
        """A connection without the token was dropped."""


@dataclass(slots=True)
class Who:
    """The process at the other end of a connection, by its hello."""

    host: str
    pid: int
    rank: int | None


class RankConnection(asyncio.Protocol):
    """One connection: a stranger until it has shown the token, a rank from then on."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._rest = b""
        self._next_seq = 0
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.TimerHandle | None = None
        self.who: Who | None = None
        self.rank: int | None = None
        self.ended = False

    @property
    def peer(self) -> str:
        """The address at the other end."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return f"{name[0]}:{name[1]}" if name else "?"

    def reply(self, **fields: Any) -> None:
        """Send the rank an answer."""
        if self._transport is not None:
            self._transport.write(json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """End the connection; a rank on any host ends with it."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._greeting = loop.call_later(
            CONNECT_TIMEOUT, self._drop, f"said nothing for {CONNECT_TIMEOUT:g} s"
        )
        self._collector.add_stranger(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._greeting is not None:
            self._greeting.cancel()
        self._transport = None
        self._collector.forget(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data if self._rest else data).split(b"\n")
        if self.who is None:
            if lines:
                self._greet(lines.pop(0))
            elif len(self._rest) > MAX_HELLO:
                self._drop("sent more than a greeting")
        if self.who is None:
            return
        if lines:
            self._take(lines)
        if len(self._rest) > MAX_LINE:
            self._break(f"sent a line of more than {MAX_LINE} bytes")

    def _greet(self, line: bytes) -> None:
        try:
            hello = decode(line) if len(line) <= MAX_HELLO else {}
        except EventError:
            hello = {}
        token = str(hello.get("token", "")).encode(errors="replace")
        if hello.get("event") != "hello" or not self._collector.knows(token):
            self._drop("did not show the run's token")
            return
        self.who = Who(hello["host"], hello["pid"], hello.get("rank"))
        if self._greeting is not None:
            self._greeting.cancel()
        self._collector.welcome(self)
        # The token is a secret of this run: it is not recorded.
        shown = {**hello, "token": "shown"}
        self._deliver([json.dumps(shown, separators=(",", ":")).encode()], [shown])

    def _take(self, lines: list[bytes]) -> None:
        """Hand on what is right; the first line that is wrong ends the connection."""
        events: list[Event] = []
        try:
            events.extend(map(decode, lines))
        except EventError as error:
            wrong = f"sent a line that is no event: {error}"
            self._deliver(lines[: len(events)], events, wrong)
            return
        self._deliver(lines, events)

    def _deliver(self, lines: list[bytes], events: list[Event], wrong: str | None = None) -> None:
        right = 0
        for event in events:
            if event["seq"] != self._next_seq:
                wrong = f"sent event {event['seq']} where {self._next_seq} was due"
                break
            self._next_seq += 1
            right += 1
        if right:
            self._collector.listener.on_events(self, lines[:right], events[:right])
        if wrong is not None:
            self._break(wrong)

    def _drop(self, why: str) -> None:
        self._collector.listener.on_stranger(self.peer, why)
        self.close()

    def _break(self, why: str) -> None:
        self._collector.listener.on_violation(self, why)
        self.close()


class Collector:
    """Listens for the ranks of one job."""

    def __init__(self, token: str, listener: Listener) -> None:
        self.listener = listener
        self._token = token.encode()
        self._strangers: dict[RankConnection, None] = {}
        self._ranks: dict[RankConnection, None] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, host: str) -> int:
        """Listen on a free port of that address, and return the port."""
        loop = asyncio.get_running_loop()
        make: Callable[[], RankConnection] = lambda: RankConnection(self)  # noqa: E731
        self._server = await loop.create_server(make, host, 0, backlog=BACKLOG)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def ranks(self) -> tuple[RankConnection, ...]:
        """The connections of ranks that are open now."""
        return tuple(self._ranks)

    def knows(self, token: bytes) -> bool:
        """Whether that is the run's token."""
        return hmac.compare_digest(token, self._token)

    def add_stranger(self, connection: RankConnection) -> None:
        """Keep a connection that has yet to show the token."""
        self._strangers[connection] = None
        if len(self._strangers) > MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            self.listener.on_stranger(oldest.peer, "was one of too many")
            oldest.close()

    def welcome(self, connection: RankConnection) -> None:
        """Take a connection for a rank's."""
        self._strangers.pop(connection, None)
        self._ranks[connection] = None

    def forget(self, connection: RankConnection) -> None:
        """A connection has ended."""
        self._strangers.pop(connection, None)
        if self._ranks.pop(connection, 0) is None:
            self.listener.on_lost(connection)

    async def close(self) -> None:
        """End all connections; ranks that are still there end with them."""
        if self._server is not None:
            self._server.close()
        for connection in (*self._strangers, *self._ranks):
            connection.close()
        # One turn of the loop, so that the ends are seen before the job is judged.
        await asyncio.sleep(0)
