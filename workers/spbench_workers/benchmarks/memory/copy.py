"""The benchmark ``memory.copy``: how fast each rank copies within its memory, or to a GPU's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from spbench_core.host_facts import VISIBLE_DEVICES
from spbench_parallel.device.gpus import Gpu, NoDeviceError
from spbench_parallel.device.streams import is_gpu, synchronize_stream
from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.memory.entry import CopyParams
from spbench_workers.binding.numa import cores_by_node, farthest_node, gpu_node
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device
from spbench_workers.single_rank_baseline import report_rate_and_limit
from spbench_workers.timing import measure

_BLOCK = 1 << 24
"""Bytes that are generated or compared at once."""
_HOST = torch.device("cpu")


def run(context: Context) -> None:
    """Run the case."""
    place = choose_device(context)
    ends = choose_endpoints(context, place)
    with bind_to_cores(context, place):
        _run(context, place, *ends)


def _run(context: Context, place: torch.device, origin: torch.device, goal: torch.device) -> None:
    size = context.read_params(CopyParams).size
    source, target = (
        allocate_buffer(size, end, context.read_params(CopyParams).pinned) for end in (origin, goal)
    )

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        # Between two GPUs the copy is on the stream of the source.
        synchronize_stream(place)

    def copy_and_corrupt() -> None:
        copy()
        target[size // 2].bitwise_not_()

    body = copy_and_corrupt if context.planted("corrupt-copy") else copy
    before = _check(context, body, source, target, "before")
    times = measure(context, body)
    after = _check(context, body, source, target, "after")
    error, detail = before if before[0] else after
    context.check("copy", error, 0.0, detail)
    report_rate_and_limit(context, copy, times, rate="bandwidth_gb_s", amount=size / 1e9)


def choose_endpoints(context: Context, place: torch.device) -> tuple[torch.device, torch.device]:
    """Return the devices of a copy's source and target.

    Raises:
        NoDeviceError: The path needs a GPU, or a second one, that is not there.
    """
    path = context.read_params(CopyParams).path
    if path == "device":
        return place, place
    if not is_gpu(place):
        raise NoDeviceError(
            f"path {path} needs a GPU, and rank {context.world.rank} on {context.world.host} "
            "computes on the CPU; take path device"
        )
    if path == "to_device":
        return _HOST, place
    return place, _HOST if path == "to_host" else _peer(context, place)


def _peer(context: Context, place: torch.device) -> torch.device:
    count = torch.cuda.device_count()
    index = place.index or 0
    if count < 2:
        raise NoDeviceError(
            f"path peer needs two GPUs, and rank {context.world.rank} on {context.world.host} "
            f"sees {count}; show it another ({VISIBLE_DEVICES}), or take path device"
        )
    peer = torch.device(place.type, (index + 1) % count)
    direct = torch.cuda.can_device_access_peer(index, peer.index)
    if context.world.rank == 0:
        context.choice(
            "peer",
            f"{place} to {peer}",
            "peer access" if direct else "no peer access: by way of the host",
        )
    return peer


def allocate_buffer(size: int, place: torch.device, pinned: bool) -> torch.Tensor:
    """Return a buffer of zeros, in pinned memory where it is on the host and asked for."""
    pins = pinned and not is_gpu(place)
    return torch.zeros(size, dtype=torch.uint8, device=place, pin_memory=pins)


def _check(
    context: Context,
    body: Callable[[], object],
    source: torch.Tensor,
    target: torch.Tensor,
    when: str,
) -> tuple[float, str]:
    """Copy fresh bytes over wrong ones; return the largest error and the place of the first."""
    size = source.numel()
    firsts = range(0, size, _BLOCK)
    context.progress("check", 0, 1)
    for first in firsts:
        fresh = _random_block(context, when, first, min(_BLOCK, size - first))
        source[first : first + _BLOCK].copy_(fresh)
        target[first : first + _BLOCK].copy_(fresh.bitwise_not_())
    body()
    for first in firsts:
        expected = _random_block(context, when, first, min(_BLOCK, size - first))
        got = target[first : first + _BLOCK].cpu()
        if not torch.equal(got, expected):
            return _difference(got, expected, first)
    return 0.0, ""


def _random_block(context: Context, when: str, first: int, size: int) -> torch.Tensor:
    seed = context.seed_for("copy", context.world.rank, when, first)
    words = torch.empty(-(-size // 8), dtype=torch.int64)
    words.random_(-(1 << 63), None, generator=torch.Generator().manual_seed(seed))
    return words.view(torch.uint8)[:size]


def _difference(got: torch.Tensor, expected: torch.Tensor, first: int) -> tuple[float, str]:
    place = int((got != expected).nonzero()[0])
    error = float((got.short() - expected.short()).abs().max())
    return error, f"byte {first + place} is {int(got[place])}, not {int(expected[place])}"


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
