"""The link of a case, measured over the path that its messages take, in the memory that they use.

On the host, that is the hosts' link. A reduction that is staged from a GPU has the same link, and
copies from the GPU and back; NCCL has its own link, and reduces in the GPU's memory.
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
from spbench_workers.pingpong.device_pair import one_way_device_seconds, open_path
from spbench_workers.pingpong.pair import Peer

NCCL_BYTES = (8, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20)
"""Sizes of messages between GPUs, up to those that fill their links."""
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
    """Return the link, measured once a job. All ranks must call it.

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
            _links[key] = _nccl_link(comm, dtype, op, device)
        elif is_gpu(device):
            by_host = measure_link(comm, dtype, op)
            _links[key] = replace(by_host, staging=_copies(comm, device))
        else:
            _links[key] = measure_host_link(comm, dtype, op)
    return _links[key]


def _copies(comm: MPI.Intracomm, device: torch.device) -> StagingCopies:
    """Measure copies between a GPU and pinned memory, as a staged reduction makes them."""

    def body_of(nbytes: int, *, to_host: bool) -> Action:
        pins = device.type == "cuda"
        here = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=pins)
        there = torch.zeros(nbytes, dtype=torch.uint8, device=device)
        target, source = (here, there) if to_host else (there, here)
        return _waited(partial(target.copy_, source, non_blocking=True), device)

    lines = [
        fit_line(measure_together(comm, _COPY_BYTES, partial(body_of, to_host=to_host)))
        for to_host in (True, False)
    ]
    return StagingCopies(*lines)


def _nccl_link(comm: MPI.Intracomm, dtype: torch.dtype, op: str, device: torch.device) -> JobLink:
    """Measure messages by NCCL, and reductions and copies in the memory of the GPUs."""

    def vectors(nbytes: int) -> tuple[torch.Tensor, torch.Tensor]:
        one, other = (
            torch.ones(nbytes // dtype.itemsize, dtype=dtype, device=device) for _ in range(2)
        )
        return one, other

    def copy_of(nbytes: int) -> Action:
        one, other = vectors(nbytes)
        return _waited(partial(one.copy_, other), device)

    def sum_of(nbytes: int) -> Action:
        one, other = vectors(nbytes)
        return _waited(partial(TORCH_OPS[op], one, other, out=one), device)

    def one_way(peer: int, count: int) -> float:
        other = Peer(comm, peer, leads=comm.rank < peer)
        return one_way_device_seconds(other, count, TRIPS, device=device, path="nccl")

    copy = fit_line(measure_together(comm, _DEVICE_BYTES, copy_of))
    if comm.size == 1:
        return JobLink(None, copy, max_bytes=NCCL_BYTES[-1])
    with open_path(comm, device, "nccl"):
        messages = measure_messages(comm, NCCL_BYTES, one_way)
    sums = measure_together(comm, _DEVICE_BYTES, sum_of)
    return JobLink(fit_link(messages, sums), copy, max_bytes=NCCL_BYTES[-1])


def _waited(action: Action, device: torch.device) -> Action:
    def body() -> None:
        action()
        synchronize_stream(device)

    return body
