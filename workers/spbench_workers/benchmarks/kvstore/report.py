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
from spbench_workers.benchmarks.kvstore.keys.sharding import max_over_mean, sum_loads
from spbench_workers.benchmarks.kvstore.params import PushPullParams
from spbench_workers.benchmarks.kvstore.rounds import RoundGroup
from spbench_workers.benchmarks.kvstore.store.base import CompressedPush, Store
from spbench_workers.benchmarks.kvstore.store.memory import StoreMemory
from spbench_workers.benchmarks.kvstore.verification.comparison import Errors
from spbench_workers.collectives.reduction import open_reduction
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
    rate = figures.bandwidth_gb_s(case.total_mb, case.roles.devices, group.seconds)
    error = -1.0 if errors is None else errors.error
    context.say(figures.format_batch_line(group.batch, group.seconds, rate, error))


def report_figures(
    context: Context, case: StoreCase, times: Sequence[float], errors: Errors
) -> None:
    """Report measure.py's figures of the case, and the mean relative error of devices.

    Args:
        context: The case.
        case: Its arrays, roles and placement of keys.
        times: The times of rounds in ms on the slowest rank.
        errors: The devices' errors in the last comparison.
    """
    if context.world.rank != 0:
        return
    seconds = median(times) / 1000.0
    rate = figures.bandwidth_gb_s(case.total_mb, case.roles.devices, seconds)
    context.metric("bandwidth_gb_s", rate)
    context.metric("error", errors.error)
    context.metric("mean_relative_error", errors.mean_relative)
    context.metric("num_arrays", len(case.elements))
    context.metric("total_mb", case.total_mb)
    context.say(f"mean relative error {errors.mean_relative:.3g}")
    if case.merge_devices and case.store.on_device:
        loads = sum_loads(case.elements, case.merge_devices, case.roles.devices)
        imbalance = max_over_mean(loads)
        context.metric("home_imbalance", imbalance)
        context.say(f"fullest home {imbalance:.2f} times the mean")
    if case.slots:
        imbalance = _server_imbalance(case)
        context.metric("server_imbalance", imbalance)
        context.say(f"fullest server {imbalance:.2f} times the mean")


def report_traffic(context: Context, store: Store, times: Sequence[float]) -> None:
    """Report the traffic of a round as passed to MPI. All ranks must call it.

    Args:
        context: The case.
        store: This rank's part in the store.
        times: The times of rounds in ms on the slowest rank.
    """
    traffic = store.traffic
    context.metric("bytes_sent", traffic.bytes)
    context.metric("messages_sent", traffic.messages)
    by_rank = context.world.comm.gather((traffic.bytes, traffic.messages))
    if by_rank is not None:
        total, messages = map(sum, zip(*by_rank, strict=True))
        rate = total / (median(times) * 1e6)
        context.metric("bytes_on_the_wire", total)
        context.metric("wire_gb_s", rate)
        busiest = max(by_rank)[0]
        context.say(
            f"{total / 1e6:f} MB on the wire in {messages} messages a round, {rate:f} GB/sec, "
            f"{busiest / 1e6:f} MB of them from the busiest rank"
        )


def report_compression(context: Context, case: StoreCase, store: Store) -> None:
    """Report compression ratio and saturated residuals. All ranks must call it."""
    pushes = [push for push in store.pushes if isinstance(push, CompressedPush)]
    compression = case.create_compression()
    if compression is None:
        return
    plain = sum(push.gradient.nbytes for push in pushes)
    coded = sum(push.message.nbytes for push in pushes)
    saturated = sum(compression.count_saturated(push.residual) for push in pushes)
    sums = context.world.comm.allreduce(np.array([plain, coded, saturated]))
    plain, coded, saturated = (int(number) for number in sums)
    if context.world.rank == 0 and coded:
        ratio = plain / coded
        share = saturated / (plain / 4)
        context.metric("compression_ratio", ratio)
        context.metric("saturated_share", share)
        context.say(f"pushes {ratio:.2f} times smaller, {100 * share:.2f} % of elements saturated")


def report_limits(context: Context, case: StoreCase, memory: StoreMemory) -> None:
    """Report the limit of a round and the time of one allreduce.

    All ranks must call it. It overwrites the pulled values.
    """
    comm = context.world.comm
    serves = case.is_server(context.world.rank)
    devices = comm.Split(MPI.UNDEFINED if serves else 0, context.world.rank)
    if not serves:
        _report_device_limits(context, case, memory, cast(MPI.Intracomm, devices))
        devices.Free()
    sleep_at_barrier(comm)


def _report_device_limits(
    context: Context, case: StoreCase, memory: StoreMemory, devices: MPI.Intracomm
) -> None:
    nccl = context.read_params(PushPullParams).algorithm == "nccl"
    limits = _make_limit_calls(memory, devices, nccl=nccl)
    copying = _time_slowest(limits.copy, devices)
    flat = _time_slowest(limits.allreduce, devices)
    limits.free()
    if devices.rank != 0:
        return
    context.limit("time_ms", copying * 1000.0, limits.copy_text)
    if case.roles.devices > 1:
        rate = figures.bandwidth_gb_s(case.total_mb, case.roles.devices, copying)
        context.limit("bandwidth_gb_s", rate, limits.copy_text)
    if nccl:
        size = memory.device_gradients.nbytes
        reason = f"NCCL reduces in place: a copy of {size} B on the GPU is in each round"
        context.choice("in place", "off", reason)
    context.metric("flat_allreduce_ms", flat * 1000.0)
    context.say(f"limit: {limits.copy_text}: {copying:f} sec")
    context.say(f"one allreduce of all by {limits.library}: {flat:f} sec")


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
    size = gradients.nbytes
    suffix = "by each device, all at once"
    by_mpi = partial(devices.Allreduce, gradients, values)
    if not memory.on_gpu:
        copy_text = f"a copy of {size} B within its memory {suffix}"
        return _LimitCalls(
            partial(np.copyto, values, gradients), copy_text, by_mpi, "the MPI itself", _do_nothing
        )
    if nccl:
        reduction = open_reduction(devices, "nccl", memory.device_gradients, memory.device_values)
        copy_text = f"a copy of {size} B within its GPU's memory {suffix}"
        return _LimitCalls(memory.copy_on_device, copy_text, reduction.run, "NCCL", reduction.free)

    def run_staged(body: Callable[[], object]) -> None:
        memory.download_gradients()
        body()
        memory.upload_values()

    copy_text = f"copies of {size} B from its GPU to the host and back {suffix}"
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
    times = array("d", bytes(8 * _LIMIT_ROUNDS))
    time_batch(body, times, 0, _LIMIT_ROUNDS, 1.0)
    slowest = np.frombuffer(times).copy()
    devices.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
    return float(np.median(slowest))


def _server_imbalance(case: StoreCase) -> float:
    slots = [slot for slots_of_key in case.slots for slot in slots_of_key]
    loads = sum_loads(
        [slot.count for slot in slots], [slot.server for slot in slots], case.roles.servers
    )
    return max_over_mean(loads)
