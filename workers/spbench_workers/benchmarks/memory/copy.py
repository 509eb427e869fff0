"""Benchmark ``memory.copy``: each rank's copies in memory, or to and from a GPU."""

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
from spbench_workers.binding.numa import find_farthest_node, find_gpu_node, list_cores_by_node
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device
from spbench_workers.single_rank_baseline import report_rate_and_limit
from spbench_workers.timing import measure

_BLOCK = 1 << 24
"""Bytes generated or compared at once."""
_HOST = torch.device("cpu")


def run(context: Context) -> None:
    """Run the case."""
    device = choose_device(context)
    ends = choose_endpoints(context, device)
    with bind_to_cores(context, device):
        _run(context, device, *ends)


def _run(context: Context, device: torch.device, origin: torch.device, goal: torch.device) -> None:
    size = context.read_params(CopyParams).size
    source, target = (
        allocate_buffer(size, end, context.read_params(CopyParams).pinned) for end in (origin, goal)
    )

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        # Between two GPUs the copy is on the stream of the source.
        synchronize_stream(device)

    def copy_and_corrupt() -> None:
        copy()
        target[size // 2].bitwise_not_()

    body = copy_and_corrupt if context.planted("corrupt-copy") else copy
    before = _check(context, body, source, target, "before")
    times_ms = measure(context, body)
    after = _check(context, body, source, target, "after")
    error, detail = before if before[0] else after
    context.check("copy", error, 0.0, detail)
    gigabytes = size / 1e9
    report_rate_and_limit(
        context, copy, times_ms, rate="bandwidth_gb_s", work_per_iteration=gigabytes
    )


def choose_endpoints(context: Context, device: torch.device) -> tuple[torch.device, torch.device]:
    """Return the devices of a copy's source and target.

    Raises:
        NoDeviceError: The path needs a GPU, or a second one, and it is missing.
    """
    path = context.read_params(CopyParams).path
    if path == "device":
        return device, device
    if not is_gpu(device):
        raise NoDeviceError(
            f"path {path} needs a GPU, and rank {context.world.rank} on {context.world.host} "
            "computes on the CPU; take path device"
        )
    if path == "to_device":
        return _HOST, device
    if path == "to_host":
        return device, _HOST
    return device, _choose_peer(context, device)


def _choose_peer(context: Context, device: torch.device) -> torch.device:
    count = torch.cuda.device_count()
    index = device.index or 0
    if count < 2:
        raise NoDeviceError(
            f"path peer needs two GPUs, and rank {context.world.rank} on {context.world.host} "
            f"sees {count}; show it another ({VISIBLE_DEVICES}), or take path device"
        )
    peer = torch.device(device.type, (index + 1) % count)
    direct = torch.cuda.can_device_access_peer(index, peer.index)
    if context.world.rank == 0:
        context.choice(
            "peer",
            f"{device} to {peer}",
            "peer access" if direct else "no peer access: by way of the host",
        )
    return peer


def allocate_buffer(size: int, device: torch.device, pinned: bool) -> torch.Tensor:
    """Return a buffer of zeros; on the host it is pinned if requested."""
    pin_memory = pinned and not is_gpu(device)
    return torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pin_memory)


def _check(
    context: Context,
    body: Callable[[], object],
    source: torch.Tensor,
    target: torch.Tensor,
    phase: str,
) -> tuple[float, str]:
    """Copy fresh bytes over wrong ones; return the error and position of a wrong byte."""
    size = source.numel()
    firsts = range(0, size, _BLOCK)
    context.progress("check", 0, 1)
    for first in firsts:
        fresh = _draw_block(context, phase, first, min(_BLOCK, size - first))
        source[first : first + _BLOCK].copy_(fresh)
        target[first : first + _BLOCK].copy_(fresh.bitwise_not_())
    body()
    for first in firsts:
        expected = _draw_block(context, phase, first, min(_BLOCK, size - first))
        actual = target[first : first + _BLOCK].cpu()
        if not torch.equal(actual, expected):
            return _describe_difference(actual, expected, first)
    return 0.0, ""


def _draw_block(context: Context, phase: str, first: int, size: int) -> torch.Tensor:
    seed = context.seed_for("copy", context.world.rank, phase, first)
    numbers = torch.empty(-(-size // 8), dtype=torch.int64)
    numbers.random_(-(1 << 63), None, generator=torch.Generator().manual_seed(seed))
    return numbers.view(torch.uint8)[:size]


def _describe_difference(
    actual: torch.Tensor, expected: torch.Tensor, first: int
) -> tuple[float, str]:
    index = int((actual != expected).nonzero()[0])
    error = float((actual.short() - expected.short()).abs().max())
    return error, f"byte {first + index} is {int(actual[index])}, not {int(expected[index])}"


@contextmanager
def bind_to_cores(context: Context, device: torch.device) -> Iterator[None]:
    """Bind this rank to the requested cores; first touch places its memory there too.

    Raises:
        CannotRunError: There is no GPU, its NUMA node is unknown, there is no other node, or the
            rank may not run there.
    """
    requested = context.read_params(CopyParams).cores
    if requested == "all":
        yield
        return
    before = os.sched_getaffinity(0)
    threads = torch.get_num_threads()
    node = _move_to_node(requested, _find_gpu_address(requested, device))
    if context.world.rank == 0:
        context.choice("cores", f"{requested}: NUMA node {node}", _describe_cores())
    # Threads of torch that already exist keep their cores, and would place memory there.
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, before)


def _find_gpu_address(requested: str, device: torch.device) -> str | None:
    if not is_gpu(device):
        raise CannotRunError(
            f"cores {requested} are those of a GPU, and the device is {device}; take cores all"
        )
    return Gpu.from_device(device).address


def _move_to_node(requested: str, address: str | None) -> int:
    """Move to cores near a GPU or far from it; return their NUMA node.

    Raises:
        CannotRunError: The GPU's node is unknown, there is no such node, or the rank may not run
            there.
    """
    own_node = find_gpu_node(address) if address is not None else None
    if own_node is None:
        raise CannotRunError(
            f"cores {requested}: the system does not tell on which NUMA node the GPU "
            f"{address or 'of this rank'} is; take cores all"
        )
    cores = list_cores_by_node()
    node = own_node if requested == "near" else find_farthest_node(own_node, cores)
    if node is None or not cores.get(node):
        raise CannotRunError(
            f"cores {requested}: there is no such NUMA node with cores for the GPU {address}, "
            f"which is on node {own_node}; take cores all"
        )
    try:
        os.sched_setaffinity(0, cores[node])
    except OSError as error:
        raise CannotRunError(
            f"cores {requested}: the rank may not run on NUMA node {node} ({error.strerror}); give "
            "the job the whole host, or take cores all"
        ) from None
    return node


def _describe_cores() -> str:
    cores = sorted(os.sched_getaffinity(0))
    return f"{len(cores)} cores, from {cores[0]} to {cores[-1]}"
