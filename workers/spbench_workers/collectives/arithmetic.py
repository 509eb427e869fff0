"""Memory and arithmetic of vectors: bytes for MPI, and reductions in place.

numpy adds in place at the lowest cost per call. Torch computes bf16, which numpy does not have, and
fp16, which numpy computes number by number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from spbench_parallel.device.formats import TORCH_DTYPES

FORMATS = TORCH_DTYPES | {"int32": torch.int32, "int64": torch.int64}
"""Torch's dtypes by the catalog's names of formats."""

_NUMPY: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
TORCH_OPS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
}
"""The functions that reduce two tensors, by the operation's name."""
_SHORT = (torch.float16, torch.bfloat16)
"""Formats with two bytes: numpy lacks them or is slow, and MPI 3.1 has no type for them."""

Action = Callable[[], object]


def is_short(dtype: torch.dtype) -> bool:
    """Return whether a format has two bytes.

    Neither numpy nor MPI 3.1 reduces such numbers.
    """
    return dtype in _SHORT


def view_as_bytes(vector: torch.Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return a view of the bytes of a dense vector on the host."""
    view: np.ndarray[Any, np.dtype[np.uint8]] = vector.view(torch.uint8).numpy()
    return view


def reduce_into(op: str, target: torch.Tensor, other: torch.Tensor) -> Action:
    """Return a function that reduces ``other`` into ``target`` in place.

    Args:
        op: ``sum``, ``prod``, ``max`` or ``min``.
        target: A dense vector on the host.
        other: A vector of the same type and length.
    """
    if is_short(target.dtype):
        return partial(TORCH_OPS[op], target, other, out=target)
    target_array = target.numpy()
    return partial(_NUMPY[op], target_array, other.numpy(), out=target_array)


def copy_into(target: torch.Tensor, source: torch.Tensor) -> Action:
    """Return a function that copies a vector on the host to another like it."""
    return partial(np.copyto, view_as_bytes(target), view_as_bytes(source))


def do_nothing() -> None:
    """Do nothing, instead of the copy before a reduction that is not in place."""
