"""A rank's connection: checks its lines and passes on events in batches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from spbench_core.events.fields import Event, EventError
from spbench_core.events.rank_events import MAX_LINE, decode

WELCOME = {"reply": "hello"}


def encode_reply(fields: Mapping[str, Any]) -> bytes:
    """Return a reply as a line."""
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


class Listener(Protocol):
    """The receiver of the events of one job."""

    def on_events(self, source: RankConnection, lines: list[bytes], events: list[Event]) -> None:
        """Take a batch of one rank's events, and their lines."""

    def on_violation(self, source: RankConnection, reason: str) -> None:
        """Handle a rank with the right token that broke the protocol."""

    def on_lost(self, source: RankConnection) -> None:
        """Handle the end of a rank's connection."""

    def on_relay_lost(self, host: str, num_ranks: int, reason: str) -> None:
        """Handle the end of a host's relay, and of the connections of its ranks."""

    def on_rejected(self, peer: str, reason: str) -> None:
        """Handle a dropped connection without the token."""


@dataclass(slots=True)
class RankIdentity:
    """The process at the other end of a connection, from its hello."""

    host: str
    pid: int
    rank: int | None


class RankPeer(Protocol):
    """A source of one rank's events: a connection, or the file that the rank wrote."""

    identity: RankIdentity
    rank: int | None
    ended: bool

    def reply(self, **fields: Any) -> None:
        """Send the rank a reply."""


class ReplyTransport(Protocol):
    """The connection on which replies to a rank are sent."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def abort(self) -> None:
        """End the connection at once."""


class RankOwner(Protocol):
    """The part of the collector that connections of ranks use."""

    listener: Listener

    def parse_hello(self, line: bytes) -> Event | None:
        """Return the hello in a line if it shows the token; otherwise None."""

    def add_rank(self, connection: RankConnection) -> None:
        """Add the connection of a rank."""

    def remove_rank(self, connection: RankConnection) -> None:
        """Remove the connection of a rank that has ended."""


class RankConnection:
    """The connection of a rank that has shown the token, directly or through a relay."""

    def __init__(
        self, collector: RankOwner, transport: ReplyTransport, peer: str, hello: Event
    ) -> None:
        self._collector = collector
        self._incomplete = b""
        self._next_seq = 0
        self._transport: ReplyTransport | None = transport
        self.peer = peer
        self.identity = RankIdentity(hello["host"], hello["pid"], hello["rank"])
        self.rank: int | None = None
        self.ended = False

    def reply(self, **fields: Any) -> None:
        """Send the rank a reply."""
        if self._transport is not None:
            self._transport.write(encode_reply(fields))

    def close(self) -> None:
        """End the connection; the rank ends with it on any host."""
        if self._transport is not None:
            self._transport.abort()

    def begin(self, hello: Event, remainder: bytes) -> None:
        """Record the hello, answer it, and process the bytes after it."""
        self._collector.add_rank(self)
        # The token is a secret of this run, so it is not recorded.
        recorded_hello = {**hello, "token": "shown"}
        self._deliver(
            [json.dumps(recorded_hello, separators=(",", ":")).encode()], [recorded_hello]
        )
        # A rank that does not read this reply was not admitted, and tries again.
        self.reply(**WELCOME)
        if remainder:
            self.receive(remainder)

    def finish(self) -> None:
        """Note that no further bytes will arrive."""
        self._transport = None
        self._collector.remove_rank(self)

    def receive(self, data: bytes) -> None:
        """Process received bytes, and pass on the complete lines."""
        *lines, self._incomplete = (self._incomplete + data if self._incomplete else data).split(
            b"\n"
        )
        if lines:
            self._decode(lines)
        if len(self._incomplete) > MAX_LINE:
            self._reject(f"sent a line of more than {MAX_LINE} bytes")

    def _decode(self, lines: list[bytes]) -> None:
        """Pass on the events before the first invalid line, which ends the connection."""
        events: list[Event] = []
        try:
            events.extend(map(decode, lines))
        except EventError as error:
            violation = f"sent a line that is no event: {error}"
            self._deliver(lines[: len(events)], events, violation)
            return
        self._deliver(lines, events)

    def _deliver(
        self, lines: list[bytes], events: list[Event], violation: str | None = None
    ) -> None:
        num_valid = 0
        for event in events:
            if event["seq"] != self._next_seq:
                violation = f"sent event {event['seq']} where {self._next_seq} was due"
                break
            self._next_seq += 1
            num_valid += 1
        if num_valid:
            self._collector.listener.on_events(self, lines[:num_valid], events[:num_valid])
        if violation is not None:
            self._reject(violation)

    def _reject(self, reason: str) -> None:
        self._collector.listener.on_violation(self, reason)
        self.close()
