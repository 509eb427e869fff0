"""Allreduce over ranks by any algorithm or library, behind one function.

reduction = open_reduction(comm, "ring", source, result)
reduction.run()
reduction.free()
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI

from spbench_parallel.errors import CannotRunError
from spbench_workers.collectives import plan
from spbench_workers.collectives.base import Mode, Reduction
from spbench_workers.collectives.native import open_native
from spbench_workers.collectives.staged import Opener, StagedReduction
from spbench_workers.collectives.stepped import open_stepped


def open_reduction(
    comm: MPI.Intracomm,
    algorithm: str,
    source: torch.Tensor,
    result: torch.Tensor,
    op: str = "sum",
    *,
    mode: Mode = "blocking",
    order: Sequence[int] | None = None,
    group: int | None = None,
    chunks: int | None = None,
) -> Reduction:
    """Return an allreduce that can be run often.

    All ranks must call it with the same arguments.

    Messages travel on ``comm`` itself: reductions that are under way at the same time, or in
    another order on another rank, need communicators of their own.

    Args:
        comm: The ranks.
        algorithm: One of `plan.ALGORITHMS`, or ``native`` (the MPI's own), ``gloo``, ``nccl``.
        source: The input of this rank, a dense vector: fp64, fp32, fp16, bf16, int32 or int64.
        result: Memory of the output, of the same type, length and device; the source itself
            reduces in place. Vectors on a GPU are staged through the host, except with ``nccl``.
        op: ``sum``, ``prod``, ``max`` or ``min``.
        mode: ``blocking`` or ``persistent`` for `Reduction.run`, ``nonblocking`` for `start` and
            `wait` as well. Persistent requests cost the least where messages are small.
        order: The ranks by position in the algorithm; see `plan.schedule`.
        group: Ranks of a group of ``two_level``.
        chunks: Chunks of ``chain``.

    Raises:
        CannotRunError: The ranks cannot run the algorithm, or not in this mode.
    """
    if algorithm in ("gloo", "nccl"):
        return _distributed(comm, algorithm, source, result, op, mode)

    if algorithm == "native":
        return open_collective(comm, "allreduce", source, result, op, mode)

    def on_host(source: torch.Tensor, result: torch.Tensor) -> Reduction:
        if reason := plan.refusal(algorithm, comm.size):
            raise CannotRunError(reason)
        steps = plan.schedule(
            algorithm,
            comm.size,
            comm.rank,
            result.numel(),
            order=order,
            group=group,
            chunks=chunks,
        )
        return open_stepped(comm, steps, source, result, op, mode)

    return _staged(source, result, on_host)


def open_collective(
    comm: MPI.Intracomm,
    collective: str,
    source: torch.Tensor,
    result: torch.Tensor,
    op: str = "sum",
    mode: Mode = "blocking",
) -> Reduction:
    """Return a collective of the MPI itself; see `open_native`.

    All ranks must call it alike.

    Raises:
        CannotRunError: The mode is persistent, and the MPI has no persistent collectives.
    """

    def on_host(source: torch.Tensor, result: torch.Tensor) -> Reduction:
        return open_native(comm, collective, source, result, op, mode)

    return _staged(source, result, on_host)


def _staged(source: torch.Tensor, result: torch.Tensor, open_: Opener) -> Reduction:
    """Open a reduction on the host, directly or staged from a GPU."""
    if result.device.type == "cpu":
        return open_(source, result)
    return StagedReduction(source, result, open_)


def _distributed(
    comm: MPI.Intracomm,
    algorithm: str,
    source: torch.Tensor,
    result: torch.Tensor,
    op: str,
    mode: Mode,
) -> Reduction:
    # torch.distributed starts threads and is slow to import: only those who need it pay for it.
    from spbench_workers.collectives.distributed import DistributedReduction

    if mode == "persistent":
        raise CannotRunError(
            f"mode persistent is for MPI; use mode blocking or nonblocking with {algorithm}"
        )

    def open_(source: torch.Tensor, result: torch.Tensor) -> Reduction:
        return DistributedReduction(comm, algorithm, source, result, op)

    return open_(source, result) if algorithm == "nccl" else _staged(source, result, open_)
