"""Point-to-point messages over MPI, and MPI's view of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI

from spbench_parallel.p2p import Message


def mpi_buffer(tensor: torch.Tensor) -> MPI.buffer:
    """Return the memory of a tensor on the host, from its first to its last value."""
    if tensor.numel() == 0:
        return MPI.buffer.fromaddress(0, 0)
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    last_index = sum((length - 1) * stride for length, stride in axes)
    return MPI.buffer.fromaddress(tensor.data_ptr(), (last_index + 1) * tensor.element_size())


@dataclass(frozen=True, slots=True)
class MpiRequests:
    """Pending requests of MPI messages."""

    requests: list[MPI.Request]

    def wait(self) -> None:
        """Wait for all requests."""
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
        requests = [
            self.comm.Isend([mpi_buffer(vector), MPI.BYTE], dest=rank, tag=tag)
            for vector, rank in messages
        ]
        return [MpiRequests(requests)]

    def receive(self, messages: Sequence[Message], tag: int) -> list[MpiRequests]:
        """Start to receive."""
        requests = [
            self.comm.Irecv([mpi_buffer(vector), MPI.BYTE], source=rank, tag=tag)
            for vector, rank in messages
        ]
        return [MpiRequests(requests)]

    def free(self) -> None:
        """Do nothing: the owner of the communicator frees it."""
