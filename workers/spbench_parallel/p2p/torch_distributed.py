"""Point-to-point messages over torch.distributed: gloo on the host, NCCL between GPUs.

After the timeout of `torch_group`, for a rank that does not join or a message that does not end,
torch raises an error (gloo) or ends the process (NCCL).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI

from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.p2p import Message, torch_group

HOST = torch.device("cpu")


class GlooP2P:
    """Point-to-point messages by gloo, which matches them by their tags.

    Args:
        comm: The ranks; all of them must open it.

    Raises:
        GroupError: A rank could not join the others; all of them raise it.
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
    """Point-to-point messages by NCCL: a group for each tag, and a batch for each call.

    Batches run one after the other on a stream of the group, and a receive that is posted ahead
    holds that stream until its message comes.

    Args:
        comm: The ranks; all of them must open it.
        device: This rank's GPU.
        tags: All tags, the same on all ranks. With one tag a rank only sends, or only receives.

    Raises:
        GroupError: A rank could not join the others; all of them raise it.
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

        The first message between two ranks connects them, for which NCCL waits for both
        of them: a receive posted ahead would wait there for a rank that may wait for this one.
        """
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        given, taken = torch.zeros(2, comm.size, dtype=torch.uint8, device=self._device)
        receives = [(taken[rank : rank + 1], rank) for rank in others]
        sends = [(given[rank : rank + 1], rank) for rank in others]
        for work in self._groups[tag].exchange(receives, sends, tag):
            work.wait()
        synchronize_stream(self._device)
