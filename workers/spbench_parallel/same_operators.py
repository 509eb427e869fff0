"""Check that all ranks have traced the same network.

A forward pass that depends on the rank, the time or the order of a set may differ between ranks.
Ranks would then wait for messages that no rank sends.
"""

from __future__ import annotations

import hashlib

import torch
from mpi4py import MPI

from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.tracing import TracedNetwork


def check_same_operators(comm: MPI.Comm, network: TracedNetwork) -> None:
    """Reject a network that differs between ranks. All ranks must call it.

    Raises:
        CannotRunError: A rank's network differs; on all ranks.
    """
    digests = comm.allgather(_digest(network))
    different_ranks = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if different_ranks:
        raise CannotRunError(
            f"network {network.name}: rank {different_ranks[0]} has other operators or constants "
            "than rank 0; let its forward depend on its input only, not on the rank, the time or "
            "the order of a set"
        )


def _digest(network: TracedNetwork) -> str:
    digest = hashlib.blake2b(str(network.graph).encode(), digest_size=8)
    for node in network.graph.nodes:
        digest.update(repr(network.get_module(node)).encode())
        if node.op == "get_attr" and network.is_constant(node):
            values: torch.Tensor = get_attribute(network.module, str(node.target))
            digest.update(values.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
