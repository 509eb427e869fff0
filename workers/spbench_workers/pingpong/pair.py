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
"""Round trips before the timed ones."""
_MAX_TRIPS = 1000
"""The largest number of round trips of a short message; the first ones are slower."""
_MAX_TRIP_SECONDS = 0.005
"""The largest sum of seconds of all round trips of a short message."""
_TRIPS_PER_SAMPLE = 10
"""Round trips between two readings of the clock, which take as long as a short message."""


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
        self.peer = peer
        self.count = count
        comm = peer.comm
        rank = peer.rank
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

    def make_round_trips(self, count: int) -> None:
        """Make ``count`` round trips; both ranks must ask for the same number."""
        (self._lead if self.peer.leads else self._follow)(count)

    def _lead(self, count: int) -> None:
        start_send = self._send.Start
        wait_send = self._send.Wait
        start_receive = self._receive.Start
        wait_receive = self._receive.Wait
        # The receive is started while the message is in flight, before the answer can arrive.
        for _ in repeat(None, count):
            start_send()
            start_receive()
            wait_send()
            wait_receive()

    def _follow(self, count: int) -> None:
        start_send = self._send.Start
        wait_send = self._send.Wait
        start_receive = self._receive.Start
        wait_receive = self._receive.Wait
        # The next receive is started before the answer is sent, so that it is ready in time.
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


def measure_half_trip(make_trips: Callable[[int], object], count: int) -> float:
    """Return half the time of a round trip, after a few that are not timed.

    Args:
        make_trips: Makes a number of round trips.
        count: The number of round trips; the result is the median of samples of a few of them.
    """
    make_trips(_WARM_UP)
    samples = max(1, count // _TRIPS_PER_SAMPLE)
    trip_seconds = array("d", bytes(8 * samples))
    body = partial(make_trips, _TRIPS_PER_SAMPLE)
    time_batch(body, trip_seconds, 0, samples, 1.0 / _TRIPS_PER_SAMPLE)
    return median(trip_seconds) / 2.0


def measure_one_way(peer: Peer, count: int, trips: int) -> float:
    """Return half the time of a round trip of ``count`` bytes.

    Both ranks must call it.
    """
    outgoing = MPI.Alloc_mem(count)
    incoming = MPI.Alloc_mem(count)
    outgoing[:] = bytes(count)
    incoming[:] = bytes(count)
    pair = Pair(peer, outgoing, incoming, count)
    seconds = measure_half_trip(pair.make_round_trips, trips)
    agreed_trips = _agree_on_trips(peer, seconds)
    if agreed_trips > trips:
        seconds = measure_half_trip(pair.make_round_trips, agreed_trips)
    pair.free()
    MPI.Free_mem(outgoing)
    MPI.Free_mem(incoming)
    return seconds


def _agree_on_trips(peer: Peer, seconds: float) -> int:
    """Return the number of further round trips that both ranks make in time."""
    if not peer.leads:
        received: int = peer.comm.recv(source=peer.rank, tag=TAG)
        return received
    more_trips = min(_MAX_TRIPS, round(_MAX_TRIP_SECONDS / (2.0 * seconds))) if seconds > 0 else 0
    peer.comm.send(more_trips, dest=peer.rank, tag=TAG)
    return more_trips
