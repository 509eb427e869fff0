"""Allreduce by torch.distributed: gloo on the host, NCCL on GPUs."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist
from mpi4py import MPI

from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.errors import CannotRunError
from spbench_parallel.p2p import torch_group

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}


class DistributedAllreduce:
    """An allreduce of torch.distributed, run by its threads or streams.

    Args:
        comm: The ranks.
        backend: ``gloo``, or ``nccl``, which needs source and result on a separate GPU per rank.
        source: The input of this rank, a dense vector.
        result: Memory of the output; the source itself reduces in place.
        op: ``sum``, ``prod``, ``max`` or ``min``.

    Raises:
        CannotRunError: The ranks cannot create such a group; all of them raise it.
    """

    traffic = None

    def __init__(
        self,
        comm: MPI.Intracomm,
        backend: str,
        source: torch.Tensor,
        result: torch.Tensor,
        op: str,
    ) -> None:
        self._comm = comm
        self._device = result.device
        if backend == "nccl" and (reason := torch_group.explain_missing_nccl(comm, self._device)):
            raise CannotRunError(f"algorithm nccl {reason}; choose another algorithm")
        self._group = torch_group.acquire(comm, self._device)
        self._copy = None if source is result else partial(result.copy_, source)
        self._begin = partial(self._group.allreduce, result, _OPS[op])
        self._work: torch_group.TorchWork | None = None

    def run(self) -> None:
        self.start()
        self.wait()

    def start(self) -> None:
        if self._copy is not None:
            self._copy()
        self._work = self._begin()

    def poll(self) -> bool:
        return self._work is None or self._work.is_completed()

    def wait(self) -> None:
        if self._work is not None:
            # On a GPU only the current stream waits, so that the host has to wait for it.
            self._work.wait()
            synchronize_stream(self._device)
            self._work = None

    def free(self) -> None:
        torch_group.release(self._comm, self._device)
