"""A rank's connection: its lines checked and numbered, its events handed on in batches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from spbench_core.events.fields import Event, EventError
from spbench_core.events.rank_events import MAX_LINE, decode

WELCOME = {"reply": "hello"}


def encode_reply(fields: Mapping[str, Any]) -> bytes:
    """Return an answer as a line."""
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


class Listener(Protocol):
    """The receiver of the events of one job."""

    def on_events(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Take a batch of one rank's events, and the lines they came in."""

    def on_violation(self, source: RankConnection, why: str) -> None:
        """A rank with the right token broke the protocol."""

    def on_lost(self, source: RankConnection) -> None:
        """A rank's connection has ended."""

    def on_relay_lost(self, host: str, ranks: int, why: str) -> None:
        """A host's relay is gone, and with it the connections of so many ranks: ``why`` says it."""

    def on_rejected(self, peer: str, why: str) -> None:
        """A connection without the token was dropped."""


@dataclass(slots=True)
class RankIdentity:
    """The process at the other end of a connection, by its hello."""

    host: str
    pid: int
    rank: int | None


class RankPeer(Protocol):
    """A rank that events come from: over a connection, or from the file that it wrote."""

    identity: RankIdentity
    rank: int | None
    ended: bool

    def reply(self, **fields: Any) -> None:
        """Send the rank an answer."""


class ReplyLine(Protocol):
    """The way back to a rank."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def abort(self) -> None:
        """End it at once."""


class ConnectionOwner(Protocol):
    """The collector, as its connections see it."""

    listener: Listener

    def parse_hello(self, line: bytes) -> Event | None:
        """Return the hello that a line is, if it shows the token."""

    def welcome(self, connection: RankConnection) -> None:
        """Take a connection for a rank's."""

    def forget(self, connection: RankConnection) -> None:
        """A rank's connection has ended."""


class RankConnection:
    """The connection of a rank that has shown the token, of its own or by a relay."""

    def __init__(
        self, collector: ConnectionOwner, line: ReplyLine, peer: str, hello: Event
    ) -> None:
        self._collector = collector
        self._rest = b""
        self._next_seq = 0
        self._line: ReplyLine | None = line
        self.peer = peer
        self.identity = RankIdentity(hello["host"], hello["pid"], hello["rank"])
        self.rank: int | None = None
        self.ended = False

    def reply(self, **fields: Any) -> None:
        """Send the rank an answer."""
        if self._line is not None:
            self._line.write(encode_reply(fields))

    def close(self) -> None:
        """End the connection; a rank on any host ends with it."""
        if self._line is not None:
            self._line.abort()

    def begin(self, hello: Event, rest: bytes) -> None:
        """Take the rank in: its hello, the answer to it, and what came after."""
        self._collector.welcome(self)
        # The token is a secret of this run: it is not recorded.
        shown = {**hello, "token": "shown"}
        self._deliver([json.dumps(shown, separators=(",", ":")).encode()], [shown])
        # A rank that has not read this was not let in, and tries again.
        self.reply(**WELCOME)
        if rest:
            self.receive(rest)

    def finish(self) -> None:
        """Note that no more will come."""
        self._line = None
        self._collector.forget(self)

    def receive(self, data: bytes) -> None:
        """Take bytes as they come, and hand on the whole lines among them."""
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
