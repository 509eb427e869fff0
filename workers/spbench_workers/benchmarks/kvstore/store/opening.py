"""Opening of the store that a case asks for: each rank's part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from mpi4py import MPI

from spbench_core.catalog.typed_params import require_value
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.groups import is_on_one_host
from spbench_workers.benchmarks.kvstore.case import StoreCase
from spbench_workers.benchmarks.kvstore.entry import PushPullParams, select_devices
from spbench_workers.benchmarks.kvstore.keys.arena import Arena, Bucket, make_buckets
from spbench_workers.benchmarks.kvstore.keys.sharding import Slot, list_server_slots
from spbench_workers.benchmarks.kvstore.roles import Server
from spbench_workers.benchmarks.kvstore.store import fault_injection
from spbench_workers.benchmarks.kvstore.store.allreduce_store import AllreduceStore
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
from spbench_workers.collectives.base import Reduction
from spbench_workers.collectives.reduction import open_reduction
from spbench_workers.context import Context
from spbench_workers.device_choice import check_same_kind, choose_device

SHARED = "shared"
"""The algorithm that sums in shared memory of a host."""


def open_window(
    context: Context, case: StoreCase, comm: MPI.Intracomm, place: torch.device
) -> SharedWindow | None:
    """Return the shared memory of all devices, where they sum in it.

    Raises:
        CannotRunError: They are to, and are not all on one host.
    """
    params = context.read_params(PushPullParams)
    speaks = context.world.rank == 0
    way = params.algorithm if params.sums is None else params.sums
    if way == "auto":
        obstacle = _obstacle(params, comm, place)
        way = SHARED if obstacle is None else "messages"
        if speaks:
            context.choice("sums", way, obstacle or "all devices are on one host")
    return SharedWindow(comm, sum(case.elements)) if way == SHARED else None


def _obstacle(params: PushPullParams, comm: MPI.Intracomm, place: torch.device) -> str | None:
    """Return why devices cannot sum in shared memory; the same on all of them."""
    if comm.size == 1:
        return "there is one device"
    if params.gc_type != "none":
        return "compressed pushes are sent"
    if is_gpu(place):
        return "gradients are on GPUs"
    return None if is_on_one_host(comm) else "the devices are not all on one host"


def open_shared_arenas(case: StoreCase, window: SharedWindow, rank: int) -> tuple[Arena, Arena]:
    """Return the gradients and the values of a device in shared memory.

    With allreduce and an optimizer the values are in its own memory: others write sums there, and
    not weights.
    """
    updates = case.store.name == "allreduce" and case.optimizer != "none"
    sums = None if updates else window.sums[rank]
    elements = case.elements
    return Arena(elements, memory=window.sources[rank]), Arena(elements, memory=sums)


def open_allreduce(
    params: PushPullParams,
    case: StoreCase,
    comm: MPI.Intracomm,
    memory: StoreMemory,
    window: SharedWindow | None,
) -> AllreduceStore:
    """Return a device's part of the store ``allreduce``.

    Args:
        params: The case's parameters.
        case: The case of these parameters.
        comm: The devices.
        memory: This device's memory.
        window: The shared memory of `open_window`, or None.

    Raises:
        CannotRunError: The ranks cannot run the algorithm.
    """
    values = memory.values.flat
    sums = values if case.optimizer == "none" else np.zeros_like(values)
    open_: Callable[[Bucket], Reduction]
    if window is not None:
        sums = window.sums[comm.rank]
        shared = window

        def open_(bucket: Bucket) -> Reduction:
            return shared.open_sum(bucket.first, bucket.last)
    else:
        given = memory.gradients.tensor
        got = torch.from_numpy(sums)
        algorithm = require_value(params.algorithm)
        if algorithm == "nccl":
            given = memory.device_gradients
            got = memory.device_values

        def open_(bucket: Bucket) -> Reduction:
            part = slice(bucket.first, bucket.last)
            return open_reduction(comm, algorithm, given[part], got[part])

    return AllreduceStore(_buckets(params, case), open_, sums, values, case.optimizer)


def _buckets(params: PushPullParams, case: StoreCase) -> list[Bucket]:
    sizes: dict[str | None, int | None] = {"tensor": 0, "flat": None}
    size = sizes.get(params.bucket, params.bucket_bytes)
    backward = params.priority == "descending"
    return make_buckets(case.elements, size, backward=backward, split=params.bucket == "sliced")


_HOST = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class StoreComms:
    """The communicators of a case.

    Attributes:
        all: All ranks of the job.
        worker: The devices of this rank's worker; the null communicator on a server.
    """

    job: MPI.Intracomm
    worker: MPI.Intracomm

    def free(self) -> None:
        """Free them."""
        self.job.Free()
        if self.worker != MPI.COMM_NULL:
            self.worker.Free()


@dataclass(frozen=True, slots=True)
class StorePart:
    """One rank's part of a store, and its memory.

    Attributes:
        store: Its part in the store.
        memory: Its gradients and pulled values; both are empty on a server.
        shards: The shards that it keeps; none on a device.
        serves: Whether it is a server.
        window: The shared memory of all devices, if the store needs it.
    """

    store: Store
    memory: StoreMemory
    shards: Sequence[ServerShard] = ()
    is_server: bool = False
    window: SharedWindow | None = None

    def free(self) -> None:
        """Free what MPI holds. All ranks must call it, and not use the memory afterwards."""
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
        CannotRunError: The device is not there, the ranks cannot run the algorithm, or a fault is
            to be injected where there is no element to spoil.
    """
    params = context.read_params(PushPullParams)
    serves = case.is_server(context.world.rank)
    place = _place(context, serves)
    if serves:
        nothing = Arena([0] * len(case.elements))
        server = _open_server(context, case, ranks)
        return StorePart(
            server, StoreMemory(nothing, nothing, _HOST), server.shards, is_server=True
        )
    window = open_window(context, case, ranks.worker, place)
    if window is None:
        pinned = place.type == "cuda"
        both = (Arena(case.elements, pinned=pinned), Arena(case.elements, pinned=pinned))
    else:
        both = open_shared_arenas(case, window, ranks.worker.rank)
    memory = StoreMemory(*both, place)
    store = _open_device(params, case, ranks, memory, window)
    if is_gpu(place) and params.algorithm != "nccl":
        store = StagedStore(store, memory, asynchronous=case.store.asynchronous)
    return StorePart(store, memory, window=window)


def _place(context: Context, serves: bool) -> torch.device:
    """Return the rank's device: the host for a server, else that of `gpus` or `device_ids`.

    Raises:
        CannotRunError: The device is not there, or some workers have GPUs and others have none.
    """
    params = context.read_params(PushPullParams)
    gpus = select_devices(params)
    named = len(params.gpus or ()) != 1
    place = choose_device(
        context,
        preference="cpu" if serves else None,
        index=gpus[context.world.rank % len(gpus)] if named else None,
    )
    check_same_kind(context, None if serves else place)
    return place


def _open_server(context: Context, case: StoreCase, ranks: StoreComms) -> ServerRank:
    """Return a server's part of the store, with the fault in it that is injected.

    Raises:
        NothingToSpoilError: A fault is to be injected, and the server keeps no element.
    """
    roles = case.roles
    role = roles.role(context.world.rank)
    assert isinstance(role, Server)
    slots = list_server_slots(case.slots, role.index)
    largest = max((slot.count for slot in slots), default=0)
    intake = ReceiveBuffer(ranks.job, largest, case.create_compression())
    make = _async_shard if case.store.asynchronous else _sync_shard
    spoiled = fault_injection.choose_faulty_slot(context, slots)
    shards = [make(context, case, intake, slot, slot is spoiled) for slot in slots]
    return ServerRank(ranks.job, shards, roles.workers, roles.devices, case.store.asynchronous)


def _sync_shard(
    context: Context, case: StoreCase, intake: ReceiveBuffer, slot: Slot, spoil: bool
) -> ServerShard:
    kind = (
        fault_injection.choose_faulty_class(context, fault_injection.FAULTY_SYNC_SHARDS)
        if spoil
        else SyncServerShard
    )
    return kind(intake, slot, case.list_clients(slot.key), case.optimizer)


def _async_shard(
    context: Context, case: StoreCase, intake: ReceiveBuffer, slot: Slot, spoil: bool
) -> ServerShard:
    kind = (
        fault_injection.choose_faulty_class(context, fault_injection.FAULTY_ASYNC_SHARDS)
        if spoil
        else AsyncServerShard
    )
    # Results are compared after each group of rounds, or only after the last one.
    params = context.read_params(PushPullParams)
    total = params.num_batches
    every = params.disp_batches
    rounds = min(total, every) if context.read_params(PushPullParams).test_results else total + 1
    kept = case.roles.workers * rounds
    return kind(intake, slot, case.list_clients(slot.key), case.optimizer, kept)


def _open_device(
    params: PushPullParams,
    case: StoreCase,
    ranks: StoreComms,
    memory: StoreMemory,
    window: SharedWindow | None,
) -> Store:
    if case.store.name == "allreduce":
        return open_allreduce(params, case, ranks.worker, memory, window)
    if case.store.dist:
        return DistStore(
            ranks.job,
            ranks.worker,
            case.merge_devices,
            case.roles.server_ranks,
            case.slots,
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
