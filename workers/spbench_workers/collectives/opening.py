"""Allreduces by any algorithm or library, and MPI's other collectives.

allreduce = open_allreduce(comm, "ring", source, result)
allreduce.run()
allreduce.free()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from mpi4py import MPI

from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.errors import CannotRunError, catch_out_of_memory
from spbench_workers.collectives import plan
from spbench_workers.collectives.base import Collective, Mode, RankTraffic
from spbench_workers.collectives.native import open_native
from spbench_workers.collectives.stepped import open_stepped

Opener = Callable[[torch.Tensor, torch.Tensor], Collective]
"""Opens a collective from a source to a result, both on the host."""


def open_allreduce(
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
) -> Collective:
    """Return an allreduce for repeated runs.

    All ranks must call it with the same arguments. Messages use ``comm`` itself. Simultaneous
    allreduces, or allreduces in another order on another rank, need separate communicators.

    Args:
        comm: The ranks.
        algorithm: One of `plan.ALGORITHMS`, or ``native`` (MPI's allreduce), ``gloo``, ``nccl``.
        source: The input of this rank, a dense vector: fp64, fp32, fp16, bf16, int32 or int64.
        result: Memory of the output, of the same type, length and device; the source itself
            reduces in place. Vectors on a GPU are staged through the host, except with ``nccl``.
        op: ``sum``, ``prod``, ``max`` or ``min``.
        mode: ``blocking`` or ``persistent`` for `Collective.run`; ``nonblocking`` also for `start`
            and `wait`. Persistent requests are cheapest for small messages.
        order: The ranks by position in the algorithm; see `plan.build_schedule`.
        group: Ranks per group of ``two_level``.
        chunks: Chunks of ``chain``.

    Raises:
        CannotRunError: The ranks cannot run the algorithm, or not in this mode.
    """
    if algorithm in ("gloo", "nccl"):
        return _open_distributed(comm, algorithm, source, result, op, mode)

    if algorithm == "native":
        return open_collective(comm, "allreduce", source, result, op, mode)

    def open_on_host(source: torch.Tensor, result: torch.Tensor) -> Collective:
        if reason := plan.explain_unsupported(algorithm, comm.size):
            raise CannotRunError(reason)
        steps = plan.build_schedule(
            algorithm,
            comm.size,
            comm.rank,
            result.numel(),
            order=order,
            group=group,
            chunks=chunks,
        )
        return open_stepped(comm, steps, source, result, op, mode)

    return _open_staged(source, result, open_on_host)


def open_collective(
    comm: MPI.Intracomm,
    collective: str,
    source: torch.Tensor,
    result: torch.Tensor,
    op: str = "sum",
    mode: Mode = "blocking",
) -> Collective:
    """Return one of MPI's collectives; see `open_native`.

    All ranks must call it with equal arguments.

    Raises:
        CannotRunError: The mode is persistent, and the MPI has no persistent collectives.
    """

    def open_on_host(source: torch.Tensor, result: torch.Tensor) -> Collective:
        return open_native(comm, collective, source, result, op, mode)

    return _open_staged(source, result, open_on_host)


def _open_staged(source: torch.Tensor, result: torch.Tensor, open_: Opener) -> Collective:
    """Open a collective on the host, directly or staged from a GPU."""
    if result.device.type == "cpu":
        return open_(source, result)
    return StagedCollective(source, result, open_)


def _open_distributed(
    comm: MPI.Intracomm,
    algorithm: str,
    source: torch.Tensor,
    result: torch.Tensor,
    op: str,
    mode: Mode,
) -> Collective:
    # Imported only when needed: torch.distributed starts threads and is slow to import.
    from spbench_workers.collectives.distributed import DistributedAllreduce

    if mode == "persistent":
        raise CannotRunError(
            f"mode persistent is for MPI; use mode blocking or nonblocking with {algorithm}"
        )

    def open_distributed(source: torch.Tensor, result: torch.Tensor) -> Collective:
        return DistributedAllreduce(comm, algorithm, source, result, op)

    if algorithm == "nccl":
        return open_distributed(source, result)
    return _open_staged(source, result, open_distributed)


class StagedCollective:
    """A collective in pinned memory of the host; its time includes both copies.

    Args:
        source: The input of this rank, on a GPU.
        result: Memory of the output; the source itself reduces in place.
        open_on_host: Opens the collective on the host.
    """

    def __init__(self, source: torch.Tensor, result: torch.Tensor, open_on_host: Opener) -> None:
        self._source = source
        self._result = result
        self._device = result.device
        self._host_source = _allocate_pinned(source)
        self._host_result = self._host_source if source is result else _allocate_pinned(result)
        self._host_collective = open_on_host(self._host_source, self._host_result)

    @property
    def traffic(self) -> RankTraffic | None:
        return self._host_collective.traffic

    def run(self) -> None:
        self.start()
        self.wait()

    def start(self) -> None:
        self._host_source.copy_(self._source, non_blocking=True)
        synchronize_stream(self._device)
        self._host_collective.start()

    def poll(self) -> bool:
        return self._host_collective.poll()

    def wait(self) -> None:
        self._host_collective.wait()
        self._result.copy_(self._host_result, non_blocking=True)
        # The next run overwrites the memory from which this copies.
        synchronize_stream(self._device)

    def free(self) -> None:
        self._host_collective.free()


def _allocate_pinned(vector: torch.Tensor) -> torch.Tensor:
    with catch_out_of_memory(vector.nbytes):
        return torch.empty_like(vector, device="cpu", pin_memory=vector.device.type == "cuda")
