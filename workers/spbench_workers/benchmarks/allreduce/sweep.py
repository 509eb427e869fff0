"""Benchmark ``allreduce.sweep``: a collective of one size by one algorithm."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

import torch
from mpi4py import MPI

from spbench_core.catalog.typed_params import require_value
from spbench_parallel.errors import CannotRunError
from spbench_workers.benchmarks.allreduce.buffers import Buffers
from spbench_workers.benchmarks.allreduce.entry import SweepParams
from spbench_workers.benchmarks.allreduce.findings import (
    MeasuredTimes,
    report_findings,
    report_traffic,
)
from spbench_workers.benchmarks.allreduce.overlap import measure_overlap
from spbench_workers.benchmarks.allreduce.paired_comparison import (
    PairedComparison,
    compare_interleaved,
)
from spbench_workers.benchmarks.allreduce.verification.checking import CheckedCollective, Checks
from spbench_workers.benchmarks.allreduce.verification.expected import (
    compute_depth,
    list_result_parts,
)
from spbench_workers.collectives.arithmetic import FORMATS
from spbench_workers.collectives.base import Collective, RankTraffic
from spbench_workers.collectives.opening import open_allreduce, open_collective
from spbench_workers.context import Context
from spbench_workers.device_choice import check_same_kind, choose_device
from spbench_workers.timing import compute_calls_per_sample, measure, repeat_calls

_HOST = torch.device("cpu")
_PROBE_RUNS = 5
"""Runs that are timed to choose the number of runs in a sample."""
_LONG_SECONDS = 0.01
"""A single run of at least this many seconds is a sample."""


def run(context: Context) -> None:
    """Run the case."""
    params = context.read_params(SweepParams)
    world = context.world
    # With a separate communicator, messages of other measurements cannot match these.
    comm = world.comm.Dup()
    part_count = _count_part(params, world.size)
    buffers = _allocate_buffers(context, part_count)
    collective = _open_collective(comm, params, buffers)
    if context.planted("wrong-element"):
        collective = CorruptingCollective(collective, buffers.result)
    checks = Checks(
        context,
        CheckedCollective(
            buffers,
            collective,
            list_result_parts(params.collective, world.size, world.rank, part_count),
            runs=world.size if params.rotate_roots else 1,
            depth=compute_depth(params.algorithm, world.size, params.group),
        ),
    )

    checks.run("before")
    _fill_neutral(buffers, params.op)
    calls = _choose_calls(context, collective)
    times_ms = measure(context, repeat_calls(collective.run, calls), divide=calls)
    measured = _fold_times(context, part_count, buffers, times_ms)

    if params.mode == "nonblocking":
        # MPI does a reduction staged through the host, so the rank's core does the computation.
        device = measured.device if params.algorithm == "nccl" else _HOST
        context.metric("overlap", measure_overlap(comm, collective, measured.seconds, device))

    comparison = _compare_with_native(context, comm, buffers, collective, measured.seconds)

    checks.run("after")
    checks.report()
    context.metric("wrong", checks.wrong)
    report_traffic(context, collective.traffic, part_count)
    report_findings(context, measured, comparison, world.comm.allreduce(checks.wrong))
    collective.free()
    comm.Free()


def _count_part(params: SweepParams, ranks: int) -> int:
    """Return the elements of one rank's part: all of them for allreduce and broadcast."""
    element_count: int = params.size // FORMATS[params.dtype].itemsize
    return (
        element_count if params.collective in ("allreduce", "broadcast") else element_count // ranks
    )


def _allocate_buffers(context: Context, part_count: int) -> Buffers:
    """Return the buffers of a collective.

    In place, allgather has each rank's input at its final position.
    """
    params = context.read_params(SweepParams)
    world = context.world
    total_count = part_count * world.size
    input_count, result_count, offset = {
        "allreduce": (part_count, part_count, 0),
        "broadcast": (part_count, part_count, 0),
        "allgather": (part_count, total_count, world.rank * part_count),
        "reduce_scatter": (total_count, part_count, 0),
        "alltoall": (total_count, total_count, 0),
    }[params.collective]
    dtype = FORMATS[params.dtype]
    device = choose_device(context)
    check_same_kind(context, device)
    if not params.in_place:
        return Buffers(input_count, result_count, None, dtype, device)
    return Buffers(input_count, result_count, offset, dtype, device)


def _open_collective(comm: MPI.Intracomm, params: SweepParams, buffers: Buffers) -> Collective:
    source = buffers.source
    result = buffers.result
    op = params.op or "sum"
    if params.collective != "allreduce":
        return open_collective(comm, params.collective, source, result, op, params.mode)

    def open_in_order(order: list[int] | None) -> Collective:
        return open_allreduce(
            comm,
            params.algorithm,
            source,
            result,
            op,
            mode=params.mode,
            order=order,
            group=params.group,
            chunks=params.chunks,
        )

    if params.rotate_roots:
        return RotatingAllreduce(params.order or range(comm.size), open_in_order)
    return open_in_order(params.order)


def _fill_neutral(buffers: Buffers, op: str | None) -> None:
    """Fill the memory with numbers that any number of runs in place keep in range."""
    for vector in (buffers.source, buffers.result):
        vector.fill_(0 if op == "sum" else 1)


def _choose_calls(context: Context, collective: Collective) -> int:
    """Return the number of runs in a sample, the same on all ranks."""
    calls = 1
    # The first run fills caches. If the second one is long, no more runs are needed.
    for runs in (1, 1, _PROBE_RUNS):
        context.world.comm.Barrier()
        start = perf_counter()
        for _ in range(runs):
            collective.run()
        seconds_per_run = context.largest((perf_counter() - start) / runs)
        if seconds_per_run > _LONG_SECONDS:
            return 1
        calls = compute_calls_per_sample(seconds_per_run)
    return calls


def _fold_times(
    context: Context, part_count: int, buffers: Buffers, times_ms: array[float]
) -> MeasuredTimes:
    """Return the times over all ranks, the same on every rank."""
    comm = context.world.comm
    slowest_ms = array("d", times_ms)
    comm.Allreduce(MPI.IN_PLACE, slowest_ms, op=MPI.MAX)
    median_ms_by_rank = comm.allgather(median(times_ms))
    is_whole = context.read_params(SweepParams).collective in ("allreduce", "broadcast")
    element_count = part_count if is_whole else part_count * comm.size
    return MeasuredTimes(
        element_count,
        buffers.result.device,
        (buffers.source.nbytes, buffers.result.nbytes),
        [ms / 1000.0 for ms in slowest_ms],
        [ms / 1000.0 for ms in median_ms_by_rank],
    )


def _compare_with_native(
    context: Context,
    comm: MPI.Intracomm,
    buffers: Buffers,
    allreduce: Collective,
    seconds: float,
) -> PairedComparison | None:
    """Compare an allreduce with the MPI's blocking one; return None if it is native."""
    params = context.read_params(SweepParams)
    if params.algorithm == "native":
        return None
    native = open_allreduce(
        comm, "native", buffers.source, buffers.result, require_value(params.op)
    )
    if params.algorithm == "nccl":
        # The MPI may take a hundred times as long through the host: batches follow the slower one.
        seconds = max(seconds, _time_run(context, native))
    comparison = compare_interleaved(comm, allreduce.run, native.run, seconds, params.iterations)
    native.free()
    return comparison


def _time_run(context: Context, collective: Collective) -> float:
    """Return the seconds of the second run, the same on all ranks."""
    collective.run()
    context.world.comm.Barrier()
    start = perf_counter()
    collective.run()
    return context.largest(perf_counter() - start)


class CorruptingCollective:
    """A collective with one wrong element in its result after each run.

    Args:
        collective: The collective.
        result: Its result.

    Raises:
        CannotRunError: The result has no elements.
    """

    def __init__(self, collective: Collective, result: torch.Tensor) -> None:
        if not result.numel():
            raise CannotRunError("wrong-element: the result has no elements; take a larger size")
        self._collective = collective
        self._corrupted_element = result[result.numel() // 2]

    @property
    def traffic(self) -> RankTraffic | None:
        return self._collective.traffic

    def run(self) -> None:
        self._collective.run()
        self._corrupt()

    def start(self) -> None:
        self._collective.start()

    def poll(self) -> bool:
        return self._collective.poll()

    def wait(self) -> None:
        self._collective.wait()
        self._corrupt()

    def free(self) -> None:
        self._collective.free()

    def _corrupt(self) -> None:
        """Flip the sign of the element; a zero becomes one."""
        value = self._corrupted_element
        value.copy_(torch.where(value == 0, torch.ones_like(value), -value))


class RotatingAllreduce:
    """Allreduces with rotating roots, one for each root.

    Args:
        order: The ranks by position in the first run; each run starts one position further.
        open_: Opens the allreduce for an order.
    """

    def __init__(self, order: Sequence[int], open_: Callable[[list[int]], Collective]) -> None:
        orders = ([*order[first:], *order[:first]] for first in range(len(order)))
        self._allreduces = [open_(order) for order in orders]
        self._position = -1

    @property
    def traffic(self) -> RankTraffic:
        """The traffic of this rank in an average run, bytes and messages rounded up."""
        traffics = [
            allreduce.traffic for allreduce in self._allreduces if allreduce.traffic is not None
        ]
        return RankTraffic(
            bytes=-(-sum(traffic.bytes for traffic in traffics) // len(traffics)),
            messages=-(-sum(traffic.messages for traffic in traffics) // len(traffics)),
            rounds=max(traffic.rounds for traffic in traffics),
        )

    def run(self) -> None:
        self._select_next().run()

    def start(self) -> None:
        self._select_next().start()

    def poll(self) -> bool:
        return self._allreduces[self._position].poll()

    def wait(self) -> None:
        self._allreduces[self._position].wait()

    def free(self) -> None:
        for allreduce in self._allreduces:
            allreduce.free()

    def _select_next(self) -> Collective:
        self._position = (self._position + 1) % len(self._allreduces)
        return self._allreduces[self._position]
