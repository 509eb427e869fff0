"""The collector of connections of ranks and relays, and of their events.

Connections without the token are dropped: garbage, a wrong token, a line that never ends, silence.
Memory is bounded: a connection buffers at most one incomplete line, and events are written before
more is read.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, cast

from spbench.engine.connections.admission import Admission, parse_hello
from spbench.engine.connections.descriptors import count_free_for_pending
from spbench.engine.connections.rank_connection import Listener, RankConnection
from spbench.engine.connections.relay_connection import RELAY_LEAD, RelayConnection
from spbench.errors import MissingError
from spbench_core.events.fields import Event
from spbench_core.events.rank_events import CONNECT_TIMEOUT, SILENCE_LIMIT


class _RankSocket(asyncio.Protocol):
    """The direct connection of a rank."""

    def __init__(self, collector: Collector, peer: str, hello: Event, remainder: bytes) -> None:
        self._collector = collector
        self._peer = peer
        self._hello = hello
        self._remainder = remainder
        self._rank: RankConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._rank = RankConnection(
            self._collector, cast(asyncio.Transport, transport), self._peer, self._hello
        )
        self._collector.register_end(self._rank, transport.get_extra_info("socket").fileno())
        self._rank.begin(self._hello, self._remainder)

    def data_received(self, data: bytes) -> None:
        assert self._rank is not None
        self._rank.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._rank is not None
        self._rank.finish()


class _EndOrder:
    """The order in which ranks ended their connections.

    The event loop reads connections in another order if several end while it is busy. Then the rank
    that died first, and let the others die, would not be the first that is reported.
    """

    def __init__(self) -> None:
        # the kernel lists a descriptor once its peer has ended the connection, in that order
        self._kernel_list = select.epoll()
        self._connections: dict[int, RankConnection] = {}
        # of connections that have ended, in order: whether they have been read to their end
        self._is_read: dict[RankConnection, bool] = {}

    def add(self, connection: RankConnection, descriptor: int) -> None:
        """Add a connection that is open."""
        self._connections[descriptor] = connection
        self._kernel_list.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def finish(self, connection: RankConnection) -> list[RankConnection]:
        """Note that a connection has been read to its end, and is about to be closed.

        Return the connections to report now, in order: those that ended before any connection that
        has not been read to its end.
        """
        while not self._kernel_list.closed and (ended := self._kernel_list.poll(0)):
            self._is_read |= {self._connections[descriptor]: False for descriptor, _ in ended}
        if connection not in self._is_read:  # the console closes it, or it is behind a relay
            return [connection]
        self._is_read[connection] = True
        to_report = list(takewhile(self._is_read.__getitem__, self._is_read))
        for read_connection in to_report:
            del self._is_read[read_connection]
        return to_report

    def close(self) -> None:
        """Free the descriptor; connections that end now have no order."""
        self._kernel_list.close()


class Collector:
    """The collector of the events of one job."""

    def __init__(
        self,
        token: str,
        listener: Listener,
        num_expected: int = 0,
        *,
        silence_timeout: float = SILENCE_LIMIT,
        hello_seconds: float = CONNECT_TIMEOUT,
    ) -> None:
        """Create a collector that `listen` starts.

        Args:
            token: The run's token.
            listener: Takes the events of the job.
            num_expected: The number of connections of ranks, for which descriptors are reserved.
            silence_timeout: Seconds without a sign of life after which a rank counts as hung.
            hello_seconds: The age at which a connection without the token is ended.
        """
        self.listener = listener
        self._token = token
        self._num_expected = num_expected
        self._hello_seconds = hello_seconds
        self.relay_silence_timeout = silence_timeout - RELAY_LEAD
        self._ranks: dict[RankConnection, None] = {}
        self._relays: set[RelayConnection] = set()
        self._arriving: dict[asyncio.Task[Any], socket.socket] = {}
        self._admission: Admission | None = None
        self._end_order = _EndOrder()

    async def listen(self, host: str, ports: Sequence[int] = (0,)) -> int:
        """Listen on the first free one of these ports and return it; 0 is any free port.

        Raises:
            MissingError: No port is free.
        """
        max_pending = count_free_for_pending(self._num_expected)
        self._admission = Admission(
            self._token,
            max_pending,
            self._admit,
            self.listener.on_rejected,
            hello_seconds=self._hello_seconds,
        )
        for port in ports:
            with suppress(OSError):
                return self._admission.listen(host, port)
        span = f"{ports[0]}-{ports[-1]}"
        raise MissingError(f"no port of --port-range {span} is free on {host}; give a wider range")

    @property
    def ranks(self) -> tuple[RankConnection, ...]:
        """The open connections of ranks."""
        return tuple(self._ranks)

    @property
    def pending(self) -> int:
        """The number of connections that have not shown the token."""
        return self._admission.pending if self._admission else 0

    def _admit(self, accepted: socket.socket, peer: str, hello: Event, remainder: bytes) -> None:
        loop = asyncio.get_running_loop()
        protocol_class = RelayConnection if hello.get("relay") is True else _RankSocket
        protocol = protocol_class(self, peer, hello, remainder)
        task = loop.create_task(loop.connect_accepted_socket(lambda: protocol, accepted))
        # kept until then, so that `close` also ends connections that are still being set up
        self._arriving[task] = accepted
        task.add_done_callback(lambda done: self._arriving.pop(done, None))

    def parse_hello(self, line: bytes) -> Event | None:
        """Return the hello in a line if it shows the token; otherwise None."""
        return parse_hello(line, self._token.encode())

    def add_rank(self, connection: RankConnection) -> None:
        """Add the connection of a rank."""
        self._ranks[connection] = None

    def register_end(self, connection: RankConnection, descriptor: int) -> None:
        """Register a direct connection, so that its end is reported in order with others."""
        self._end_order.add(connection, descriptor)

    def remove_rank(self, connection: RankConnection) -> None:
        """Remove the connection of a rank that has ended."""
        for ended in self._end_order.finish(connection):
            # `remove_relay` has removed the ranks of a lost relay, which are not at fault.
            if ended in self._ranks:
                del self._ranks[ended]
                self.listener.on_lost(ended)

    def add_relay(self, relay: RelayConnection) -> None:
        """Add the connection of a relay."""
        self._relays.add(relay)

    def remove_relay(
        self, relay: RelayConnection, ranks: list[RankConnection], reason: str
    ) -> None:
        """Remove a relay that has ended, and its remaining ranks, which are not at fault."""
        self._relays.discard(relay)
        for rank in ranks:
            self._ranks.pop(rank, None)
        num_cut_off = sum(not rank.ended for rank in ranks)
        if num_cut_off:
            self.listener.on_relay_lost(relay.host, num_cut_off, reason)

    async def close(self) -> None:
        """End all connections, and with them the ranks that are still connected."""
        if self._admission is not None:
            self._admission.close()
        for task, accepted in tuple(self._arriving.items()):
            task.cancel()
            accepted.close()
        for rank in tuple(self._ranks):
            rank.close()
        for relay in tuple(self._relays):
            relay.close()
        # one turn of the loop, so that the ends are seen before the job is judged
        await asyncio.sleep(0)
        self._end_order.close()
