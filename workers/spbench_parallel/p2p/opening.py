"""Opening of point-to-point messages by backend, and those over torch.distributed.

gloo sends on the host, NCCL between GPUs. If a rank does not join or a message does not end within
the timeout of `torch_group`, torch raises an error (gloo) or ends the process (NCCL).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch
from mpi4py import MPI

from spbench_parallel.device.gpus import NoDeviceError
from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.errors import CannotRunError
from spbench_parallel.p2p import P2P, Message, torch_group
from spbench_parallel.p2p.mpi import MpiP2P
from spbench_parallel.p2p.torch_group import explain_missing_nccl

BACKENDS = ("mpi", "gloo", "nccl")
HOST = torch.device("cpu")
_BLOCKING_VARIABLES = ("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING")
"""Variables that, set to 1, let a kernel that waits for another rank block all later work.

With the first, all streams share one queue to the GPU. With the second, each launch waits for its
end.
"""


def open_p2p(backend: str, comm: MPI.Intracomm, device: torch.device, tags: Sequence[int]) -> P2P:
    """Return the point-to-point messages of a backend. All ranks must call it.

    Args:
        backend: One of `BACKENDS`.
        comm: The ranks; the communicator is used for these messages only.
        device: The device of this rank's tensors.
        tags: All tags of messages, the same on all ranks.

    Raises:
        ValueError: The backend is unknown.
        CannotRunError: The backend cannot serve these ranks; all of them raise it.
    """
    match backend:
        case "mpi":
            return MpiP2P(comm)
        case "gloo":
            return GlooP2P(comm)
        case "nccl":
            check_nccl(comm, device)
            return NcclP2P(comm, device, tags)
    raise ValueError(f"{backend!r} is none of {', '.join(BACKENDS)}")


def check_nccl(comm: MPI.Intracomm, device: torch.device) -> None:
    """Check that NCCL can serve these ranks. All ranks must call it.

    Raises:
        NoDeviceError: It cannot; all ranks raise it.
        CannotRunError: A rank has settings that block its GPU; all ranks raise it.
    """
    if reason := explain_missing_nccl(comm, device):
        raise NoDeviceError(f"backend nccl {reason}; take backend mpi or gloo")
    _check_environment(comm, os.environ)


def _check_environment(comm: MPI.Intracomm, environ: Mapping[str, str]) -> None:
    """Check that receives can be posted ahead with these settings.

    All ranks must call it.

    Raises:
        CannotRunError: A rank has a setting that prevents it; all ranks raise it.
    """
    blocking = [f"{name}=1" for name in _BLOCKING_VARIABLES if environ.get(name) == "1"]
    for rank, settings in enumerate(comm.allgather(blocking)):
        if settings:
            raise CannotRunError(
                f"backend nccl: rank {rank} has {settings[0]}, with which a receive that is posted "
                "ahead holds up all other work of the GPU; unset it, or take backend mpi or gloo"
            )


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
    """Point-to-point messages by NCCL: one group per tag, and one batch per call.

    Batches run one after another on a stream of the group. A receive that is posted ahead blocks
    that stream until its message comes.

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
        self._groups = {
            tag: torch_group.acquire(tag_comm, device) for tag, tag_comm in self._comms.items()
        }
        for tag in tags:
            self._connect(comm, tag)

    def send(self, messages: Sequence[Message], tag: int) -> list[torch_group.TorchWork]:
        """Start to send."""
        return self._groups[tag].exchange((), messages, tag)

    def receive(self, messages: Sequence[Message], tag: int) -> list[torch_group.TorchWork]:
        """Start to receive."""
        return self._groups[tag].exchange(messages, (), tag)

    def free(self) -> None:
        """Leave the groups. All ranks must call it."""
        for comm in self._comms.values():
            torch_group.release(comm, self._device)
            comm.Free()

    def _connect(self, comm: MPI.Intracomm, tag: int) -> None:
        """Send a byte from each rank to each other.

        The first message between two ranks connects them, and NCCL waits for both. A receive that
        is posted ahead would wait there for a rank that may wait for this one.
        """
        peers = [rank for rank in range(comm.size) if rank != comm.rank]
        outgoing, incoming = torch.zeros(2, comm.size, dtype=torch.uint8, device=self._device)
        receives = [(incoming[rank : rank + 1], rank) for rank in peers]
        sends = [(outgoing[rank : rank + 1], rank) for rank in peers]
        for work in self._groups[tag].exchange(receives, sends, tag):
            work.wait()
        synchronize_stream(self._device)
