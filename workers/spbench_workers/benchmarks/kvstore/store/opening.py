"""Opening of the store of a case: each rank's part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from mpi4py import MPI

from spbench_parallel.device.streams import is_gpu
from spbench_parallel.groups import is_on_one_host
from spbench_workers.benchmarks.kvstore.case import StoreCase
from spbench_workers.benchmarks.kvstore.keys.arena import Arena
from spbench_workers.benchmarks.kvstore.keys.sharding import TaggedShard, list_server_shards
from spbench_workers.benchmarks.kvstore.params import PushPullParams, select_devices
from spbench_workers.benchmarks.kvstore.roles import Server
from spbench_workers.benchmarks.kvstore.store import fault_injection
from spbench_workers.benchmarks.kvstore.store.allreduce_store import open_allreduce_store
from spbench_workers.benchmarks.kvstore.store.base import Store
from spbench_workers.benchmarks.kvstore.store.device_store import DeviceStore, SharedDeviceStore
from spbench_workers.benchmarks.kvstore.store.dist_store import DistStore, ServerRank
from spbench_workers.benchmarks.kvstore.store.memory import StagedStore, StoreMemory
from spbench_workers.benchmarks.kvstore.store.server_shard import (
    AsyncServerShard,
    ReceiveBuffer,
    ServerShard,
    SyncServerShard,
)
from spbench_workers.benchmarks.kvstore.store.shared_sum import SharedWindow
from spbench_workers.context import Context
from spbench_workers.device_choice import check_same_kind, choose_device

SHARED = "shared"
"""The algorithm that sums in shared memory of a host."""


def open_window(
    context: Context, case: StoreCase, comm: MPI.Intracomm, device: torch.device
) -> SharedWindow | None:
    """Return the shared memory of all devices, or None if they do not sum in it.

    Raises:
        CannotRunError: The case requests shared memory, and the devices are on several hosts.
    """
    params = context.read_params(PushPullParams)
    speaks = context.world.rank == 0
    method = params.algorithm if params.sums is None else params.sums
    if method == "auto":
        obstacle = _find_obstacle(params, comm, device)
        method = SHARED if obstacle is None else "messages"
        if speaks:
            context.choice("sums", method, obstacle or "all devices are on one host")
    return SharedWindow(comm, sum(case.elements)) if method == SHARED else None


def _find_obstacle(params: PushPullParams, comm: MPI.Intracomm, device: torch.device) -> str | None:
    """Return the reason why devices cannot sum in shared memory, the same on all."""
    if comm.size == 1:
        return "there is one device"
    if params.gc_type != "none":
        return "compressed pushes are sent"
    if is_gpu(device):
        return "gradients are on GPUs"
    return None if is_on_one_host(comm) else "the devices are not all on one host"


def open_shared_arenas(case: StoreCase, window: SharedWindow, rank: int) -> tuple[Arena, Arena]:
    """Return the gradients and the values of a device in shared memory.

    For allreduce with an optimizer the values are in private memory, because other devices write
    sums into the shared memory, not weights.
    """
    runs_optimizer = case.store.name == "allreduce" and case.optimizer != "none"
    sums = None if runs_optimizer else window.sums[rank]
    elements = case.elements
    return Arena(elements, memory=window.sources[rank]), Arena(elements, memory=sums)


_HOST = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class StoreComms:
    """The communicators of a case.

    Attributes:
        job: All ranks of the job.
        worker: The devices of this rank's worker; the null communicator on a server.
    """

    job: MPI.Intracomm
    worker: MPI.Intracomm

    def free(self) -> None:
        """Free the communicators."""
        self.job.Free()
        if self.worker != MPI.COMM_NULL:
            self.worker.Free()


@dataclass(frozen=True, slots=True)
class StorePart:
    """One rank's part of a store, and its memory.

    Attributes:
        store: Its part in the store.
        memory: Its gradients and pulled values; both are empty on a server.
        shards: The shards that it keeps; empty on a device.
        is_server: Whether it is a server.
        window: The shared memory of all devices, if the store needs it.
    """

    store: Store
    memory: StoreMemory
    shards: Sequence[ServerShard] = ()
    is_server: bool = False
    window: SharedWindow | None = None

    def free(self) -> None:
        """Free requests and windows; the memory must not be used afterwards.

        All ranks must call it.
        """
        self.store.free()
        if self.window is not None:
            self.window.free()


def open_communicators(context: Context, case: StoreCase) -> StoreComms:
    """Return the communicators. All ranks must call it."""
    comm = context.world.comm
    rank = context.world.rank
    color = MPI.UNDEFINED if case.is_server(rank) else rank // case.roles.devices
    return StoreComms(comm.Dup(), cast(MPI.Intracomm, comm.Split(color, rank)))


def open_part(context: Context, case: StoreCase, ranks: StoreComms) -> StorePart:
    """Return this rank's part of the store. All ranks must call it.

    Raises:
        CannotRunError: The device is missing, the ranks cannot run the algorithm, or the rank of a
            fault has no element.
    """
    params = context.read_params(PushPullParams)
    is_server = case.is_server(context.world.rank)
    device = _choose_device(context, is_server)
    if is_server:
        empty = Arena([0] * len(case.elements))
        server = _open_server(context, case, ranks)
        return StorePart(server, StoreMemory(empty, empty, _HOST), server.shards, is_server=True)
    window = open_window(context, case, ranks.worker, device)
    if window is None:
        pinned = device.type == "cuda"
        gradients = Arena(case.elements, pinned=pinned)
        values = Arena(case.elements, pinned=pinned)
    else:
        gradients, values = open_shared_arenas(case, window, ranks.worker.rank)
    memory = StoreMemory(gradients, values, device)
    store = _open_device_store(params, case, ranks, memory, window)
    if is_gpu(device) and params.algorithm != "nccl":
        store = StagedStore(store, memory, asynchronous=case.store.asynchronous)
    return StorePart(store, memory, window=window)


def _choose_device(context: Context, is_server: bool) -> torch.device:
    """Return the rank's device from `gpus` or `device_ids`; for a server the host.

    Raises:
        CannotRunError: The device is missing, or only some workers have GPUs.
    """
    params = context.read_params(PushPullParams)
    gpus = select_devices(params)
    has_indices = len(params.gpus or ()) != 1
    device = choose_device(
        context,
        preference="cpu" if is_server else None,
        index=gpus[context.world.rank % len(gpus)] if has_indices else None,
    )
    check_same_kind(context, None if is_server else device)
    return device


def _open_server(context: Context, case: StoreCase, ranks: StoreComms) -> ServerRank:
    """Return a server's part of the store, with an injected fault if requested.

    Raises:
        FaultWithoutEffectError: The fault is for this server, which has no element.
    """
    roles = case.roles
    role = roles.role(context.world.rank)
    assert isinstance(role, Server)
    tagged_shards = list_server_shards(case.tagged_shards, role.index)
    largest = max((tagged_shard.count for tagged_shard in tagged_shards), default=0)
    receive_buffer = ReceiveBuffer(ranks.job, largest, case.create_compression())
    make_shard = _make_async_shard if case.store.asynchronous else _make_sync_shard
    faulty_shard = fault_injection.choose_faulty_shard(context, tagged_shards)
    shards = [
        make_shard(context, case, receive_buffer, tagged_shard, tagged_shard is faulty_shard)
        for tagged_shard in tagged_shards
    ]
    return ServerRank(ranks.job, shards, roles.workers, roles.devices, case.store.asynchronous)


def _make_sync_shard(
    context: Context,
    case: StoreCase,
    receive_buffer: ReceiveBuffer,
    tagged_shard: TaggedShard,
    is_faulty: bool,
) -> ServerShard:
    shard_class = SyncServerShard
    if is_faulty:
        shard_class = fault_injection.choose_faulty_class(
            context, fault_injection.FAULTY_SYNC_SHARDS
        )
    return shard_class(
        receive_buffer, tagged_shard, case.list_clients(tagged_shard.key), case.optimizer
    )


def _make_async_shard(
    context: Context,
    case: StoreCase,
    receive_buffer: ReceiveBuffer,
    tagged_shard: TaggedShard,
    is_faulty: bool,
) -> ServerShard:
    shard_class = AsyncServerShard
    if is_faulty:
        shard_class = fault_injection.choose_faulty_class(
            context, fault_injection.FAULTY_ASYNC_SHARDS
        )
    params = context.read_params(PushPullParams)
    # Results are compared after each group of rounds, or only after all rounds with batch 0.
    rounds = params.num_batches + 1
    if params.test_results:
        rounds = min(params.num_batches, params.disp_batches)
    max_arrivals = case.roles.workers * rounds
    clients = case.list_clients(tagged_shard.key)
    return shard_class(receive_buffer, tagged_shard, clients, case.optimizer, max_arrivals)


def _open_device_store(
    params: PushPullParams,
    case: StoreCase,
    ranks: StoreComms,
    memory: StoreMemory,
    window: SharedWindow | None,
) -> Store:
    if case.store.name == "allreduce":
        return open_allreduce_store(params, case, ranks.worker, memory, window)
    if case.store.dist:
        return DistStore(
            ranks.job,
            ranks.worker,
            case.merge_devices,
            case.roles.server_ranks,
            case.tagged_shards,
            case.order,
            memory.gradients,
            memory.values,
            case.create_compression(),
            case.store.asynchronous,
        )
    if window is not None:
        return SharedDeviceStore(
            ranks.worker,
            window,
            case.merge_devices,
            case.order,
            case.elements,
            case.optimizer,
        )
    return DeviceStore(
        ranks.worker,
        case.merge_devices,
        case.order,
        memory.gradients,
        memory.values,
        case.optimizer,
        case.create_compression(),
    )
