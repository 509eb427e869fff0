"""The cores on which a rank copies: near its GPU, far from it, or as its launcher bound it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from spbench_parallel.device.gpus import Gpu
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.memory.entry import CopyParams
from spbench_workers.binding.numa import cores_by_node, farthest_node, gpu_node
from spbench_workers.context import Context


@contextmanager
def bind_to_cores(context: Context, place: torch.device) -> Iterator[None]:
    """Bind this rank to the cores that ``cores`` asks for; by first touch its memory is there too.

    Raises:
        CannotRunError: There is no GPU, its NUMA node is not known, there is no other node, or the
            rank may not run there.
    """
    asked = context.read_params(CopyParams).cores
    if asked == "all":
        yield
        return
    before = os.sched_getaffinity(0)
    threads = torch.get_num_threads()
    taken = _take(asked, _address(asked, place))
    if context.world.rank == 0:
        context.choice("cores", f"{asked}: NUMA node {taken}", _cores_now())
    # Memory is placed by first touch: torch's other threads stay on their cores.
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, before)


def _address(asked: str, place: torch.device) -> str | None:
    if not is_gpu(place):
        raise CannotRunError(
            f"cores {asked} are those of a GPU, and the device is {place}; take cores all"
        )
    return Gpu.from_device(place).address


def _take(asked: str, address: str | None) -> int:
    """Move to cores near a GPU or far from it; return their NUMA node.

    Raises:
        CannotRunError: The GPU's node is not known, there is no such node, or the rank may not run
            there.
    """
    node = gpu_node(address) if address is not None else None
    if node is None:
        raise CannotRunError(
            f"cores {asked}: the system does not tell on which NUMA node the GPU "
            f"{address or 'of this rank'} is; take cores all"
        )
    cores = cores_by_node()
    taken = node if asked == "near" else farthest_node(node, cores)
    if taken is None or not cores.get(taken):
        raise CannotRunError(
            f"cores {asked}: there is no such NUMA node with cores for the GPU {address}, which is "
            f"on node {node}; take cores all"
        )
    try:
        os.sched_setaffinity(0, cores[taken])
    except OSError as error:
        raise CannotRunError(
            f"cores {asked}: the rank may not run on NUMA node {taken} ({error.strerror}); give "
            "the job the whole host, or take cores all"
        ) from None
    return taken


def _cores_now() -> str:
    cores = sorted(os.sched_getaffinity(0))
    return f"{len(cores)} cores, from {cores[0]} to {cores[-1]}"
