"""Point-to-point messages over MPI, in memory of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpi4py import MPI

from spbench_parallel.p2p import Message
from spbench_parallel.p2p.memory import memory_of


@dataclass(frozen=True, slots=True)
class MpiRequests:
    """Requests of MPI messages under way."""

    requests: list[MPI.Request]

    def wait(self) -> None:
        """Wait for all of them."""
        MPI.Request.Waitall(self.requests)


@dataclass(frozen=True, slots=True)
class MpiP2P:
    """Point-to-point messages by MPI, which matches them by their tags.

    Attributes:
        comm: The ranks; the communicator is used for these messages only.
    """

    comm: MPI.Intracomm

    @property
    def on_device(self) -> bool:
        """False: messages are in memory of the host, as not every MPI reads that of a GPU."""
        return False

    def send(self, messages: Sequence[Message], tag: int) -> list[MpiRequests]:
        """Start to send."""
        started = [
            self.comm.Isend([memory_of(vector), MPI.BYTE], dest=rank, tag=tag)
            for vector, rank in messages
        ]
        return [MpiRequests(started)]

    def receive(self, messages: Sequence[Message], tag: int) -> list[MpiRequests]:
        """Start to receive."""
        started = [
            self.comm.Irecv([memory_of(vector), MPI.BYTE], source=rank, tag=tag)
            for vector, rank in messages
        ]
        return [MpiRequests(started)]

    def free(self) -> None:
        """Do nothing: who made the communicator frees it."""
