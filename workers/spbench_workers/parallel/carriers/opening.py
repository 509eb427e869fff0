"""The carrier that a plan names."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI

from spbench_workers.errors import CannotRunError
from spbench_workers.parallel.carriers import Carrier
from spbench_workers.parallel.carriers.mpi import MpiCarrier
from spbench_workers.parallel.carriers.torch_distributed import GlooCarrier, NcclCarrier
from spbench_workers.torch_group import nccl_refusal

BACKENDS = ("mpi", "gloo", "nccl")


def open_carrier(
    backend: str, comm: MPI.Intracomm, device: torch.device, tags: Sequence[int]
) -> Carrier:
    """Return what carries messages between stages. All ranks must call it.

    Args:
        backend: One of `BACKENDS`.
        comm: The ranks; for these messages alone.
        device: Where this rank's tensors are.
        tags: All that messages will have, the same on all ranks.

    Raises:
        ValueError: There is no such backend.
        CannotRunError: On all ranks, where it cannot serve them.
    """
    match backend:
        case "mpi":
            return MpiCarrier(comm)
        case "gloo":
            return GlooCarrier(comm)
        case "nccl":
            if reason := nccl_refusal(comm, device):
                raise CannotRunError(f"backend nccl {reason}; take backend mpi or gloo")
            return NcclCarrier(comm, device, tags)
    raise ValueError(f"{backend!r} is none of {', '.join(BACKENDS)}")
