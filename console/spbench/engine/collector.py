"""The collector: takes the ranks' connections, checks every line, hands events on in batches.

What comes without the token is dropped: garbage, a wrong token, a line that never ends, a
connection that says nothing. Memory stays bounded: a connection holds at most one unfinished
line, and events are written before more is read.
"""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import dataclass
from typing import Any, Protocol, cast

from spbench.engine.admission import Admission
from spbench.engine.descriptors import room_for_strangers
from spbench_core.events.fields import EventError
from spbench_core.events.rank_events import MAX_LINE, decode

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
    """The connection of a rank that has shown the token."""

    def __init__(self, collector: Collector, peer: str, hello: Event, rest: bytes) -> None:
        self._collector = collector
        self._hello = hello
        self._rest = rest
        self._next_seq = 0
        self._transport: asyncio.Transport | None = None
        self.peer = peer
        self.who = Who(hello["host"], hello["pid"], hello["rank"])
        self.rank: int | None = None
        self.ended = False

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
        self._collector.welcome(self)
        # The token is a secret of this run: it is not recorded.
        shown = {**self._hello, "token": "shown"}
        self._deliver([json.dumps(shown, separators=(",", ":")).encode()], [shown])
        # A rank that has not read this was not let in, and tries again.
        self.reply(reply="hello")
        rest, self._rest = self._rest, b""
        if rest:
            self.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._collector.forget(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data if self._rest else data).split(b"\n")
        if lines:
            self._take(lines)
        if len(self._rest) > MAX_LINE:
            self._break(f"sent a line of more than {MAX_LINE} bytes")

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

    def _break(self, why: str) -> None:
        self._collector.listener.on_violation(self, why)
        self.close()


class Collector:
    """Listens for the ranks of one job."""

    def __init__(self, token: str, listener: Listener, expected: int = 0) -> None:
        """``expected`` connections are of ranks, and keep their descriptors free of strangers."""
        self.listener = listener
        self._token = token
        self._expected = expected
        self._ranks: dict[RankConnection, None] = {}
        self._arriving: dict[asyncio.Task[Any], socket.socket] = {}
        self._admission: Admission | None = None

    async def listen(self, host: str) -> int:
        """Listen on a free port of that address, and return the port."""
        room = room_for_strangers(self._expected)
        self._admission = Admission(self._token, room, self._admit, self.listener.on_stranger)
        return self._admission.listen(host)

    @property
    def ranks(self) -> tuple[RankConnection, ...]:
        """The connections of ranks that are open now."""
        return tuple(self._ranks)

    @property
    def strangers(self) -> int:
        """How many connections have yet to show the token."""
        return self._admission.strangers if self._admission else 0

    def _admit(self, accepted: socket.socket, peer: str, hello: Event, rest: bytes) -> None:
        loop = asyncio.get_running_loop()
        connection = RankConnection(self, peer, hello, rest)
        work = loop.connect_accepted_socket(lambda: connection, accepted)
        task = loop.create_task(work)
        self._arriving[task] = accepted
        task.add_done_callback(lambda done: self._arriving.pop(done, None))

    def welcome(self, connection: RankConnection) -> None:
        """Take a connection for a rank's."""
        self._ranks[connection] = None

    def forget(self, connection: RankConnection) -> None:
        """A connection has ended."""
        if self._ranks.pop(connection, 0) is None:
            self.listener.on_lost(connection)

    async def close(self) -> None:
        """End all connections; ranks that are still there end with them."""
        if self._admission is not None:
            self._admission.close()
        for task, accepted in tuple(self._arriving.items()):
            task.cancel()
            accepted.close()
        for connection in tuple(self._ranks):
            connection.close()
        # One turn of the loop, so that the ends are seen before the job is judged.
        await asyncio.sleep(0)
