"""Ping-pong of two ranks by persistent requests."""

from __future__ import annotations

from array import array
from functools import partial
from itertools import repeat
from statistics import median

from mpi4py import MPI

from spbench_workers.timing import time_batch

TAG = 77


class Pair:
    """A ping-pong of one message size between this rank and a peer.

    Args:
        comm: The communicator.
        peer: The other rank.
        leads: Whether this rank sends first.
        outgoing: Memory of the sent message.
        incoming: Memory of the received message.
        count: Bytes of one message.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        peer: int,
        leads: bool,
        outgoing: MPI.buffer,
        incoming: MPI.buffer,
        count: int,
    ) -> None:
        self.peer, self.leads, self.count = peer, leads, count
        self._send = comm.Send_init([outgoing, count, MPI.BYTE], dest=peer, tag=TAG)
        self._receive = comm.Recv_init([incoming, count, MPI.BYTE], source=peer, tag=TAG)

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
        (self._lead if self.leads else self._follow)(count)

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


def one_way_seconds(comm: MPI.Intracomm, peer: int, leads: bool, count: int, trips: int) -> float:
    """Return half the median round trip of ``count`` bytes; both ranks of the pair must call it."""
    outgoing, incoming = MPI.Alloc_mem(count), MPI.Alloc_mem(count)
    outgoing[:] = bytes(count)
    incoming[:] = bytes(count)
    pair = Pair(comm, peer, leads, outgoing, incoming, count)
    pair.trips(3)
    times = array("d", bytes(8 * trips))
    time_batch(partial(pair.trips, 1), times, 0, trips, 1.0)
    pair.free()
    MPI.Free_mem(outgoing)
    MPI.Free_mem(incoming)
    return median(times) / 2.0
