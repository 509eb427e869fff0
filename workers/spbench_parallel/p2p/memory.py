"""Memory of tensors, as MPI reads and writes it."""

from __future__ import annotations

import torch
from mpi4py import MPI


def memory_of(tensor: torch.Tensor) -> MPI.buffer:
    """Return the memory that a tensor on the host spans, from its first value to its last."""
    if tensor.numel() == 0:
        return MPI.buffer.fromaddress(0, 0)
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((length - 1) * stride for length, stride in steps)
    return MPI.buffer.fromaddress(tensor.data_ptr(), (last + 1) * tensor.element_size())
