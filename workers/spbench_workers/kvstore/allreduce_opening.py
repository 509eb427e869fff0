"""Opens the store ``allreduce``: its buckets, and what sums each of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from mpi4py import MPI

from spbench_core.catalog.parameters import Params
from spbench_workers.allreduce.reduction import Reduction, open_reduction
from spbench_workers.kvstore.allreduce_store import AllreduceStore
from spbench_workers.kvstore.arena import Arena
from spbench_workers.kvstore.buckets import Bucket, buckets
from spbench_workers.kvstore.case import Case
from spbench_workers.kvstore.memory import Memory
from spbench_workers.kvstore.shared_sum import SharedWindow

SHARED = "shared"
"""The algorithm that sums in memory which all ranks of a host see."""


def open_window(params: Params, case: Case, comm: MPI.Intracomm) -> SharedWindow | None:
    """Return the memory that all devices see, where the algorithm needs it.

    Raises:
        CannotRunError: It does, and the devices are not on one host.
    """
    return SharedWindow(comm, sum(case.elements)) if params["algorithm"] == SHARED else None


def arenas(case: Case, window: SharedWindow, rank: int) -> tuple[Arena, Arena]:
    """Return the gradients and the values of a device over the memory that all see.

    With an optimizer the values are its own: others write sums, not weights.
    """
    sums = window.sums[rank] if case.optimizer == "none" else None
    elements = case.elements
    return Arena(elements, memory=window.given[rank]), Arena(elements, memory=sums)


def open_allreduce(
    params: Params,
    case: Case,
    comm: MPI.Intracomm,
    memory: Memory,
    window: SharedWindow | None,
) -> AllreduceStore:
    """Return a device's part in the store.

    Args:
        params: The case's parameters.
        case: What they come to.
        comm: The devices.
        memory: This device's memory.
        window: What `open_window` returned.

    Raises:
        CannotRunError: The ranks cannot run the algorithm.
    """
    values = memory.values.flat
    sums = values if case.optimizer == "none" else np.zeros_like(values)
    open_: Callable[[Bucket], Reduction]
    if window is not None:
        sums, shared = window.sums[comm.rank], window

        def open_(bucket: Bucket) -> Reduction:
            return shared.open_sum(bucket.first, bucket.last)
    else:
        given, got = memory.gradients.tensor, torch.from_numpy(sums)
        if params["algorithm"] == "nccl":
            given, got = memory.given, memory.got

        def open_(bucket: Bucket) -> Reduction:
            part = slice(bucket.first, bucket.last)
            return open_reduction(comm, params["algorithm"], given[part], got[part])

    return AllreduceStore(_buckets(params, case), open_, sums, values, case.optimizer)


def _buckets(params: Params, case: Case) -> list[Bucket]:
    size = {"tensor": 0, "flat": None}.get(params["bucket"], params["bucket_bytes"])
    backward = params["priority"] == "descending"
    return buckets(case.elements, size, backward=backward, split=params["bucket"] == "sliced")
