"""The link of a case, measured over the path and in the memory of its messages.

On the host this is the link between hosts. A reduction staged from a GPU uses the same link, plus
copies from the GPU and back. NCCL has a separate link and reduces in the GPU's memory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from mpi4py import MPI

from spbench_parallel.device.streams import is_gpu, synchronize_stream
from spbench_workers.benchmarks.allreduce.model.link_fit import fit_line, fit_link
from spbench_workers.benchmarks.allreduce.model.link_times import (
    TRIPS,
    JobLink,
    StagingCopies,
    measure_host_link,
    measure_messages,
    measure_together,
)
from spbench_workers.collectives.arithmetic import TORCH_OPS, Action
from spbench_workers.pingpong.device_pair import measure_one_way_on_devices, open_path
from spbench_workers.pingpong.pair import Peer

NCCL_BYTES = (8, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20)
"""Sizes of messages between GPUs, up to sizes that fill their links."""
_COPY_BYTES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
_DEVICE_BYTES = (256 << 10, 2 << 20, 16 << 20, 64 << 20)
_HOST = torch.device("cpu")

_links: dict[tuple[int, torch.dtype, str, str, bool], JobLink] = {}


def measure_link(
    comm: MPI.Intracomm,
    dtype: torch.dtype,
    op: str,
    device: torch.device = _HOST,
    *,
    nccl: bool = False,
) -> JobLink:
    """Return the link, measured once per job. All ranks must call it.

    Args:
        comm: The ranks.
        dtype: The format that is reduced.
        op: The operation.
        device: The device of this rank's source and result.
        nccl: Whether NCCL reduces.
    """
    key = (comm.handle, dtype, op, str(device), nccl)
    if key not in _links:
        if nccl:
            _links[key] = _measure_nccl_link(comm, dtype, op, device)
        elif is_gpu(device):
            host_link = measure_link(comm, dtype, op)
            _links[key] = replace(host_link, staging=_measure_copies(comm, device))
        else:
            _links[key] = measure_host_link(comm, dtype, op)
    return _links[key]


def _measure_copies(comm: MPI.Intracomm, device: torch.device) -> StagingCopies:
    """Measure the copies of staged reductions between a GPU and pinned memory."""

    def make_copy(nbytes: int, *, to_host: bool) -> Action:
        pinned = device.type == "cuda"
        on_host = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=pinned)
        on_device = torch.zeros(nbytes, dtype=torch.uint8, device=device)
        target, source = (on_host, on_device) if to_host else (on_device, on_host)
        return _make_waiting(partial(target.copy_, source, non_blocking=True), device)

    lines = [
        fit_line(measure_together(comm, _COPY_BYTES, partial(make_copy, to_host=to_host)))
        for to_host in (True, False)
    ]
    return StagingCopies(*lines)


def _measure_nccl_link(
    comm: MPI.Intracomm, dtype: torch.dtype, op: str, device: torch.device
) -> JobLink:
    """Measure messages by NCCL, and reductions and copies in the memory of the GPUs."""

    def make_vectors(nbytes: int) -> tuple[torch.Tensor, torch.Tensor]:
        target, other = (
            torch.ones(nbytes // dtype.itemsize, dtype=dtype, device=device) for _ in range(2)
        )
        return target, other

    def make_device_copy(nbytes: int) -> Action:
        target, other = make_vectors(nbytes)
        return _make_waiting(partial(target.copy_, other), device)

    def make_sum(nbytes: int) -> Action:
        target, other = make_vectors(nbytes)
        return _make_waiting(partial(TORCH_OPS[op], target, other, out=target), device)

    def one_way(peer: int, count: int) -> float:
        other = Peer(comm, peer, leads=comm.rank < peer)
        return measure_one_way_on_devices(other, count, TRIPS, device=device, path="nccl")

    copy_line = fit_line(measure_together(comm, _DEVICE_BYTES, make_device_copy))
    if comm.size == 1:
        return JobLink(None, copy_line, max_bytes=NCCL_BYTES[-1])
    with open_path(comm, device, "nccl"):
        message_points = measure_messages(comm, NCCL_BYTES, one_way)
    sum_points = measure_together(comm, _DEVICE_BYTES, make_sum)
    return JobLink(fit_link(message_points, sum_points), copy_line, max_bytes=NCCL_BYTES[-1])


def _make_waiting(action: Action, device: torch.device) -> Action:
    def body() -> None:
        action()
        synchronize_stream(device)

    return body
