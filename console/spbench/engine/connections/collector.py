"""The collector: takes ranks' and relays' connections, and hands their events to a job's listener.

What comes without the token is dropped: garbage, a wrong token, a line that never ends, a
connection that says nothing. Memory stays bounded: a connection holds at most one unfinished
line, and events are written before more is read.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from spbench.engine.connections.admission import Admission, parse_hello
from spbench.engine.connections.descriptors import count_free_for_pending
from spbench.engine.connections.rank_connection import Listener, RankConnection
from spbench.engine.connections.relay_connection import SOONER, RelayConnection
from spbench.errors import MissingError
from spbench_core.events.fields import Event
from spbench_core.events.rank_events import SILENCE_LIMIT


class _RankSocket(asyncio.Protocol):
    """A rank's own connection."""

    def __init__(self, collector: Collector, peer: str, hello: Event, rest: bytes) -> None:
        self._collector = collector
        self._first = peer, hello, rest
        self._rank: RankConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer, hello, rest = self._first
        line = cast(asyncio.Transport, transport)
        self._rank = RankConnection(self._collector, line, peer, hello)
        self._rank.begin(hello, rest)

    def data_received(self, data: bytes) -> None:
        assert self._rank is not None
        self._rank.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._rank is not None
        self._rank.finish()


class Collector:
    """Listens for the ranks of one job."""

    def __init__(
        self,
        token: str,
        listener: Listener,
        expected: int = 0,
        *,
        silence: float = SILENCE_LIMIT,
    ) -> None:
        """Listen for nobody yet.

        Args:
            token: The run's token.
            listener: Hears what comes.
            expected: Connections that are of ranks, and keep their descriptors free of strangers.
            silence: Seconds without a sign of life after which a rank counts as hung.
        """
        self.listener = listener
        self._token = token
        self._expected = expected
        self.relay_silence = silence - SOONER
        self._ranks: dict[RankConnection, None] = {}
        self._relays: set[RelayConnection] = set()
        self._arriving: dict[asyncio.Task[Any], socket.socket] = {}
        self._admission: Admission | None = None

    async def listen(self, host: str, ports: Sequence[int] = (0,)) -> int:
        """Listen on the first of these ports that is free, 0 being any, and return the port.

        Raises:
            MissingError: None is free.
        """
        room = count_free_for_pending(self._expected)
        self._admission = Admission(self._token, room, self._admit, self.listener.on_rejected)
        for port in ports:
            with suppress(OSError):
                return self._admission.listen(host, port)
        span = f"{ports[0]}-{ports[-1]}"
        raise MissingError(f"no port of --port-range {span} is free on {host}; give a wider range")

    @property
    def ranks(self) -> tuple[RankConnection, ...]:
        """The connections of ranks that are open now."""
        return tuple(self._ranks)

    @property
    def pending(self) -> int:
        """The number of connections that have yet to show the token."""
        return self._admission.pending if self._admission else 0

    def _admit(self, accepted: socket.socket, peer: str, hello: Event, rest: bytes) -> None:
        loop = asyncio.get_running_loop()
        kind = RelayConnection if hello.get("relay") is True else _RankSocket
        made = kind(self, peer, hello, rest)
        task = loop.create_task(loop.connect_accepted_socket(lambda: made, accepted))
        self._arriving[task] = accepted
        task.add_done_callback(lambda done: self._arriving.pop(done, None))

    def parse_hello(self, line: bytes) -> Event | None:
        """Return the hello that a line is, if it shows the token."""
        return parse_hello(line, self._token.encode())

    def welcome(self, connection: RankConnection) -> None:
        """Take a connection for a rank's."""
        self._ranks[connection] = None

    def forget(self, connection: RankConnection) -> None:
        """A connection has ended."""
        if self._ranks.pop(connection, 0) is None:
            self.listener.on_lost(connection)

    def welcome_relay(self, relay: RelayConnection) -> None:
        """Take a connection for a relay's."""
        self._relays.add(relay)

    def forget_relay(self, relay: RelayConnection, ranks: list[RankConnection], why: str) -> None:
        """A relay is gone, and the ranks that it still carried are not to blame."""
        self._relays.discard(relay)
        for rank in ranks:
            self._ranks.pop(rank, None)
        cut_off = sum(not rank.ended for rank in ranks)
        if cut_off:
            self.listener.on_relay_lost(relay.host, cut_off, why)

    async def close(self) -> None:
        """End all connections; ranks that are still there end with them."""
        if self._admission is not None:
            self._admission.close()
        for task, accepted in tuple(self._arriving.items()):
            task.cancel()
            accepted.close()
        for rank in tuple(self._ranks):
            rank.close()
        for relay in tuple(self._relays):
            relay.close()
        # One turn of the loop, so that the ends are seen before the job is judged.
        await asyncio.sleep(0)
