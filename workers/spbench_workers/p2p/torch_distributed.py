"""Messages over torch.distributed: gloo through the host, NCCL between GPUs.

Ranks find each other, and each message ends, within the minutes that `torch_group` allows; then
torch raises an error (gloo), or ends the process (NCCL).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI

from spbench_workers.device.streams import finish
from spbench_workers.p2p import Message, torch_group

HOST = torch.device("cpu")


class GlooP2P:
    """Sends and receives that gloo tells apart by their tags.

    Args:
        comm: The ranks, all of which must make it.

    Raises:
        GroupError: On all ranks, if one could not join the others.
    """

    on_device = False

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm
        self._group = torch_group.acquire(comm, HOST)

    def send(self, messages: Sequence[Message], tag: int) -> list[torch_group.TorchWork]:
        """Start to send."""
        return self._group.exchange((), messages, tag)

    def receive(self, messages: Sequence[Message], tag: int) -> list[torch_group.TorchWork]:
        """Start to receive."""
        return self._group.exchange(messages, (), tag)

    def free(self) -> None:
        """Leave the group. All ranks must call it."""
        torch_group.release(self._comm, HOST)


class NcclP2P:
    """A group of NCCL for each tag; messages of one call go in one batch.

    What NCCL has been asked for runs on a stream of the group, one batch after the other, and a
    receive that is posted ahead holds that stream until its message comes.

    Args:
        comm: The ranks, all of which must make it.
        device: This rank's GPU.
        tags: All that are used, the same on all ranks. Of one tag a rank only sends, or receives.

    Raises:
        GroupError: On all ranks, if one could not join the others.
    """

    on_device = True

    def __init__(self, comm: MPI.Intracomm, device: torch.device, tags: Sequence[int]) -> None:
        self._device = device
        self._comms = {tag: comm.Dup() for tag in tags}
        self._groups = {tag: torch_group.acquire(one, device) for tag, one in self._comms.items()}
        for tag in tags:
            self._meet(comm, tag)

    def send(self, messages: Sequence[Message], tag: int) -> list[torch_group.TorchWork]:
        """Start to send."""
        return self._groups[tag].exchange((), messages, tag)

    def receive(self, messages: Sequence[Message], tag: int) -> list[torch_group.TorchWork]:
        """Start to receive."""
        return self._groups[tag].exchange(messages, (), tag)

    def free(self) -> None:
        """Leave the groups. All ranks must call it."""
        for one in self._comms.values():
            torch_group.release(one, self._device)
            one.Free()

    def _meet(self, comm: MPI.Intracomm, tag: int) -> None:
        """Send a byte from each rank to each other.

        The first message between two ranks connects them, for which NCCL waits until both have
        asked: a receive posted ahead would wait there for a rank that may wait for this one.
        """
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        given, taken = torch.zeros(2, comm.size, dtype=torch.uint8, device=self._device)
        receives = [(taken[rank : rank + 1], rank) for rank in others]
        sends = [(given[rank : rank + 1], rank) for rank in others]
        for work in self._groups[tag].exchange(receives, sends, tag):
            work.wait()
        finish(self._device)
