"""Ping-pong of two ranks by persistent requests."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from itertools import repeat
from statistics import median
from typing import NamedTuple

from mpi4py import MPI

from spbench_workers.timing import time_batch

TAG = 77

_WARM_UP = 3


class Peer(NamedTuple):
    """The other rank of a pair.

    Attributes:
        comm: The communicator.
        rank: Its rank there.
        leads: Whether this rank, and not the other, sends first.
    """

    comm: MPI.Intracomm
    rank: int
    leads: bool


class Pair:
    """A ping-pong of one message size between this rank and a peer.

    Args:
        peer: The other rank.
        outgoing: Memory of the sent message.
        incoming: Memory of the received message.
        count: Bytes of one message.
    """

    def __init__(self, peer: Peer, outgoing: MPI.buffer, incoming: MPI.buffer, count: int) -> None:
        self.peer, self.count = peer, count
        comm, rank = peer.comm, peer.rank
        self._send = comm.Send_init([outgoing, count, MPI.BYTE], dest=rank, tag=TAG)
        self._receive = comm.Recv_init([incoming, count, MPI.BYTE], source=rank, tag=TAG)

    def send(self) -> None:
        """Send once."""
        self._send.Start()
        self._send.Wait()

    def receive(self) -> None:
        """Receive once."""
        self._receive.Start()
        self._receive.Wait()

    def trips(self, count: int) -> None:
        """Make ``count`` round trips; both ranks must ask for the same number."""
        (self._lead if self.peer.leads else self._follow)(count)

    def _lead(self, count: int) -> None:
        start_send, wait_send = self._send.Start, self._send.Wait
        start_receive, wait_receive = self._receive.Start, self._receive.Wait
        # The receive is started while the message is under way, before the answer can come.
        for _ in repeat(None, count):
            start_send()
            start_receive()
            wait_send()
            wait_receive()

    def _follow(self, count: int) -> None:
        start_send, wait_send = self._send.Start, self._send.Wait
        start_receive, wait_receive = self._receive.Start, self._receive.Wait
        # The next receive is started before the answer has left: it is ready when the next comes.
        start_receive()
        for _ in repeat(None, count - 1):
            wait_receive()
            start_send()
            start_receive()
            wait_send()
        wait_receive()
        start_send()
        wait_send()

    def free(self) -> None:
        """Free the requests."""
        self._send.Free()
        self._receive.Free()


def half_trip_seconds(make_trips: Callable[[int], object], count: int) -> float:
    """Return half the median time of ``count`` round trips, after some that are not timed."""
    make_trips(_WARM_UP)
    times = array("d", bytes(8 * count))
    time_batch(partial(make_trips, 1), times, 0, count, 1.0)
    return median(times) / 2.0


def one_way_seconds(peer: Peer, count: int, trips: int) -> float:
    """Return half the median round trip of ``count`` bytes; both ranks of the pair must call it."""
    outgoing, incoming = MPI.Alloc_mem(count), MPI.Alloc_mem(count)
    outgoing[:] = bytes(count)
    incoming[:] = bytes(count)
    pair = Pair(peer, outgoing, incoming, count)
    seconds = half_trip_seconds(pair.trips, trips)
    pair.free()
    MPI.Free_mem(outgoing)
    MPI.Free_mem(incoming)
    return seconds
