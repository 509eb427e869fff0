"""Opening of point-to-point messages by the name of a backend."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch
from mpi4py import MPI

from spbench_parallel.device.gpus import NoDeviceError
from spbench_parallel.errors import CannotRunError
from spbench_parallel.p2p import P2P
from spbench_parallel.p2p.mpi import MpiP2P
from spbench_parallel.p2p.torch_distributed import GlooP2P, NcclP2P
from spbench_parallel.p2p.torch_group import nccl_refusal

BACKENDS = ("mpi", "gloo", "nccl")
_HOLDING = ("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING")
"""Variables that, set to 1, let a kernel that waits for another rank hold up all later work: all
streams share one queue to the GPU, or each launch waits for its end."""


def open_p2p(backend: str, comm: MPI.Intracomm, device: torch.device, tags: Sequence[int]) -> P2P:
    """Return the point-to-point messages of a backend. All ranks must call it.

    Args:
        backend: One of `BACKENDS`.
        comm: The ranks; the communicator is used for these messages only.
        device: The device of this rank's tensors.
        tags: All tags of messages, the same on all ranks.

    Raises:
        ValueError: There is no backend of that name.
        CannotRunError: The backend cannot serve these ranks; all of them raise it.
    """
    match backend:
        case "mpi":
            return MpiP2P(comm)
        case "gloo":
            return GlooP2P(comm)
        case "nccl":
            refuse_nccl(comm, device)
            return NcclP2P(comm, device, tags)
    raise ValueError(f"{backend!r} is none of {', '.join(BACKENDS)}")


def refuse_nccl(comm: MPI.Intracomm, device: torch.device) -> None:
    """Refuse NCCL where it cannot serve these ranks. All ranks must call it.

    Raises:
        NoDeviceError: It cannot; all ranks raise it.
        CannotRunError: A rank has settings that hold up its GPU; all ranks raise it.
    """
    if reason := nccl_refusal(comm, device):
        raise NoDeviceError(f"backend nccl {reason}; take backend mpi or gloo")
    _refuse_holding(comm, os.environ)


def _refuse_holding(comm: MPI.Intracomm, environ: Mapping[str, str]) -> None:
    """Refuse settings with which receives cannot be posted ahead. All ranks must call it.

    Raises:
        CannotRunError: A rank has such a setting; all ranks raise it.
    """
    found = [f"{name}=1" for name in _HOLDING if environ.get(name) == "1"]
    for rank, settings in enumerate(comm.allgather(found)):
        if settings:
            raise CannotRunError(
                f"backend nccl: rank {rank} has {settings[0]}, with which a receive that is posted "
                "ahead holds up all other work of the GPU; unset it, or take backend mpi or gloo"
            )
