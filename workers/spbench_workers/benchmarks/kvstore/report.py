"""Metrics and limits of a store, and the lines of measure.py."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import cast

import numpy as np
from mpi4py import MPI

from spbench_parallel.groups import sleep_at_barrier
from spbench_workers.benchmarks.kvstore import figures
from spbench_workers.benchmarks.kvstore.case import StoreCase
from spbench_workers.benchmarks.kvstore.keys.sharding import compute_max_over_mean, sum_loads
from spbench_workers.benchmarks.kvstore.params import PushPullParams
from spbench_workers.benchmarks.kvstore.rounds import RoundGroup
from spbench_workers.benchmarks.kvstore.store.base import CompressedPush, Store
from spbench_workers.benchmarks.kvstore.store.memory import StoreMemory
from spbench_workers.benchmarks.kvstore.verification.comparison import Errors
from spbench_workers.collectives.opening import open_allreduce
from spbench_workers.context import Context
from spbench_workers.timing import time_batch

_LIMIT_ROUNDS = 5


def print_size(context: Context, case: StoreCase) -> None:
    """Print measure.py's first line."""
    context.say(figures.format_size_line(len(case.elements), case.total_mb))


def print_group(
    context: Context, case: StoreCase, group: RoundGroup, errors: Errors | None
) -> None:
    """Print measure.py's line of some rounds; ``errors`` is None if not compared."""
    gb_per_second = figures.compute_bandwidth(case.total_mb, case.roles.devices, group.seconds)
    error = -1.0 if errors is None else errors.error
    context.say(figures.format_batch_line(group.batch, group.seconds, gb_per_second, error))


def report_figures(
    context: Context, case: StoreCase, times_ms: Sequence[float], errors: Errors
) -> None:
    """Report measure.py's figures of the case, and the mean relative error of devices.

    Args:
        context: The case.
        case: Its arrays, roles and placement of keys.
        times_ms: The times of rounds in ms on the slowest rank.
        errors: The devices' errors in the last comparison.
    """
    if context.world.rank != 0:
        return
    seconds = median(times_ms) / 1000.0
    gb_per_second = figures.compute_bandwidth(case.total_mb, case.roles.devices, seconds)
    context.metric("bandwidth_gb_s", gb_per_second)
    context.metric("error", errors.error)
    context.metric("mean_relative_error", errors.mean_relative)
    context.metric("num_arrays", len(case.elements))
    context.metric("total_mb", case.total_mb)
    context.say(f"mean relative error {errors.mean_relative:.3g}")
    if case.merge_devices and case.store.on_device:
        loads = sum_loads(case.elements, case.merge_devices, case.roles.devices)
        imbalance = compute_max_over_mean(loads)
        context.metric("home_imbalance", imbalance)
        context.say(f"fullest home {imbalance:.2f} times the mean")
    if case.tagged_shards:
        imbalance = _server_imbalance(case)
        context.metric("server_imbalance", imbalance)
        context.say(f"fullest server {imbalance:.2f} times the mean")


def report_traffic(context: Context, store: Store, times_ms: Sequence[float]) -> None:
    """Report the traffic of a round as passed to MPI. All ranks must call it.

    Args:
        context: The case.
        store: This rank's part in the store.
        times_ms: The times of rounds in ms on the slowest rank.
    """
    traffic = store.traffic
    context.metric("bytes_sent", traffic.bytes)
    context.metric("messages_sent", traffic.messages)
    by_rank = context.world.comm.gather((traffic.bytes, traffic.messages))
    if by_rank is not None:
        total_bytes, total_messages = map(sum, zip(*by_rank, strict=True))
        gb_per_second = total_bytes / (median(times_ms) * 1e6)
        context.metric("bytes_on_the_wire", total_bytes)
        context.metric("wire_gb_s", gb_per_second)
        busiest_bytes = max(by_rank)[0]
        context.say(
            f"{total_bytes / 1e6:f} MB on the wire in {total_messages} messages a round, "
            f"{gb_per_second:f} GB/sec, {busiest_bytes / 1e6:f} MB of them from the busiest rank"
        )


def report_compression(context: Context, case: StoreCase, store: Store) -> None:
    """Report compression ratio and saturated residuals. All ranks must call it."""
    pushes = [push for push in store.pushes if isinstance(push, CompressedPush)]
    compression = case.create_compression()
    if compression is None:
        return
    plain_bytes = sum(push.gradient.nbytes for push in pushes)
    coded_bytes = sum(push.message.nbytes for push in pushes)
    saturated_elements = sum(compression.count_saturated(push.residual) for push in pushes)
    totals = context.world.comm.allreduce(np.array([plain_bytes, coded_bytes, saturated_elements]))
    plain_bytes, coded_bytes, saturated_elements = (int(number) for number in totals)
    if context.world.rank == 0 and coded_bytes:
        ratio = plain_bytes / coded_bytes
        saturated_share = saturated_elements / (plain_bytes / 4)
        context.metric("compression_ratio", ratio)
        context.metric("saturated_share", saturated_share)
        context.say(
            f"pushes {ratio:.2f} times smaller, {100 * saturated_share:.2f} % of elements saturated"
        )


def report_limits(context: Context, case: StoreCase, memory: StoreMemory) -> None:
    """Report the limit of a round and the time of one allreduce.

    All ranks must call it. It overwrites the pulled values.
    """
    comm = context.world.comm
    is_server = case.is_server(context.world.rank)
    devices = comm.Split(MPI.UNDEFINED if is_server else 0, context.world.rank)
    if not is_server:
        _report_device_limits(context, case, memory, cast(MPI.Intracomm, devices))
        devices.Free()
    sleep_at_barrier(comm)


def _report_device_limits(
    context: Context, case: StoreCase, memory: StoreMemory, devices: MPI.Intracomm
) -> None:
    nccl = context.read_params(PushPullParams).algorithm == "nccl"
    calls = _make_limit_calls(memory, devices, nccl=nccl)
    copy_seconds = _time_slowest(calls.copy, devices)
    allreduce_seconds = _time_slowest(calls.allreduce, devices)
    calls.free()
    if devices.rank != 0:
        return
    context.limit("time_ms", copy_seconds * 1000.0, calls.copy_text)
    if case.roles.devices > 1:
        gb_per_second = figures.compute_bandwidth(case.total_mb, case.roles.devices, copy_seconds)
        context.limit("bandwidth_gb_s", gb_per_second, calls.copy_text)
    if nccl:
        nbytes = memory.device_gradients.nbytes
        reason = f"NCCL reduces in place: a copy of {nbytes} B on the GPU is in each round"
        context.choice("in place", "off", reason)
    context.metric("flat_allreduce_ms", allreduce_seconds * 1000.0)
    context.say(f"limit: {calls.copy_text}: {copy_seconds:f} sec")
    context.say(f"one allreduce of all by {calls.library}: {allreduce_seconds:f} sec")


@dataclass(frozen=True, slots=True)
class _LimitCalls:
    """Calls that are timed for comparison, over the path and memory of the store.

    Attributes:
        copy: Copies all arrays.
        copy_text: A text for the copies.
        allreduce: Runs one allreduce of all arrays.
        library: A text for the library of the allreduce.
        free: Frees the resources of the allreduce. All devices must call it.
    """

    copy: Callable[[], object]
    copy_text: str
    allreduce: Callable[[], object]
    library: str
    free: Callable[[], object]


def _make_limit_calls(memory: StoreMemory, devices: MPI.Intracomm, *, nccl: bool) -> _LimitCalls:
    gradients = memory.gradients.flat
    values = memory.values.flat
    nbytes = gradients.nbytes
    suffix = "by each device, all at once"
    by_mpi = partial(devices.Allreduce, gradients, values)
    if not memory.on_gpu:
        copy_text = f"a copy of {nbytes} B within its memory {suffix}"
        return _LimitCalls(
            partial(np.copyto, values, gradients), copy_text, by_mpi, "the MPI itself", _do_nothing
        )
    if nccl:
        allreduce = open_allreduce(devices, "nccl", memory.device_gradients, memory.device_values)
        copy_text = f"a copy of {nbytes} B within its GPU's memory {suffix}"
        return _LimitCalls(memory.copy_on_device, copy_text, allreduce.run, "NCCL", allreduce.free)

    def run_staged(body: Callable[[], object]) -> None:
        memory.download_gradients()
        body()
        memory.upload_values()

    copy_text = f"copies of {nbytes} B from its GPU to the host and back {suffix}"
    library = "the MPI itself, by way of the host"
    return _LimitCalls(
        partial(run_staged, _do_nothing),
        copy_text,
        partial(run_staged, by_mpi),
        library,
        _do_nothing,
    )


def _do_nothing() -> None:
    pass


def _time_slowest(body: Callable[[], object], devices: MPI.Intracomm) -> float:
    """Return the median seconds of a call, each as long as its slowest device's."""
    body()
    devices.Barrier()
    own_seconds = array("d", bytes(8 * _LIMIT_ROUNDS))
    time_batch(body, own_seconds, 0, _LIMIT_ROUNDS, 1.0)
    slowest_seconds = np.frombuffer(own_seconds).copy()
    devices.Allreduce(MPI.IN_PLACE, slowest_seconds, MPI.MAX)
    return float(np.median(slowest_seconds))


def _server_imbalance(case: StoreCase) -> float:
    tagged_shards = [shard for shards_of_key in case.tagged_shards for shard in shards_of_key]
    loads = sum_loads(
        [shard.count for shard in tagged_shards],
        [shard.server for shard in tagged_shards],
        case.roles.servers,
    )
    return compute_max_over_mean(loads)
