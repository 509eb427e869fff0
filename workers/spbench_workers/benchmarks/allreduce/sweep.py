"""The benchmark ``allreduce.sweep``: a collective of one size, by one algorithm."""

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
from spbench_workers.collectives.base import RankTraffic, Reduction
from spbench_workers.collectives.reduction import open_collective, open_reduction
from spbench_workers.context import Context
from spbench_workers.device_choice import check_same_kind, choose_device
from spbench_workers.timing import calls_per_sample, measure, repeat_calls

_HOST = torch.device("cpu")
_TRIED = 5
"""Runs that are timed to find how many runs make a sample."""
_LONG = 0.01
"""Seconds from which on a single run is a sample."""


def run(context: Context) -> None:
    """Run the case."""
    params = context.read_params(SweepParams)
    world = context.world
    # Messages of other cases and of other measurements need another communicator.
    comm = world.comm.Dup()
    part = _part(params, world.size)
    buffers = _buffers(context, part)
    reduction = _opened(comm, params, buffers)
    if context.planted("wrong-element"):
        reduction = WrongElement(reduction, buffers.result)
    checks = Checks(
        context,
        CheckedCollective(
            buffers,
            reduction,
            list_result_parts(params.collective, world.size, world.rank, part),
            runs=world.size if params.rotate_roots else 1,
            depth=compute_depth(params.algorithm, world.size, params.group),
        ),
    )
    checks.run("before")
    _make_idle(buffers, params.op)
    calls = _calls_of_a_sample(context, reduction)
    times = measure(context, repeat_calls(reduction.run, calls), divide=calls)
    measured = _measured(context, part, buffers, times)
    if params.mode == "nonblocking":
        # A reduction staged through the host is MPI's work: the rank's core is to hide it.
        device = measured.device if params.algorithm == "nccl" else _HOST
        context.metric("overlap", measure_overlap(comm, reduction, measured.seconds, device))
    against = _against_native(context, comm, buffers, reduction, measured.seconds)
    checks.run("after")
    checks.report()
    context.metric("wrong", checks.wrong)
    report_traffic(context, reduction.traffic, part)
    report_findings(context, measured, against, world.comm.allreduce(checks.wrong))
    reduction.free()
    comm.Free()


def _part(params: SweepParams, ranks: int) -> int:
    """Return the elements of one rank's part of the size; all of them for allreduce, broadcast."""
    count: int = params.size // FORMATS[params.dtype].itemsize
    return count if params.collective in ("allreduce", "broadcast") else count // ranks


def _buffers(context: Context, part: int) -> Buffers:
    """Return the memory of a collective; allgather in place has each part at its final place."""
    params = context.read_params(SweepParams)
    world = context.world
    whole = part * world.size
    given, gotten, at = {
        "allreduce": (part, part, 0),
        "broadcast": (part, part, 0),
        "allgather": (part, whole, world.rank * part),
        "reduce_scatter": (whole, part, 0),
        "alltoall": (whole, whole, 0),
    }[params.collective]
    dtype = FORMATS[params.dtype]
    place = choose_device(context)
    check_same_kind(context, place)
    return Buffers(given, gotten, at if params.in_place else None, dtype, place)


def _opened(comm: MPI.Intracomm, params: SweepParams, buffers: Buffers) -> Reduction:
    source = buffers.source
    result = buffers.result
    op = params.op or "sum"
    if params.collective != "allreduce":
        return open_collective(comm, params.collective, source, result, op, params.mode)

    def of_order(order: list[int] | None) -> Reduction:
        return open_reduction(
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
        return RotatingReduction(params.order or range(comm.size), of_order)
    return of_order(params.order)


def _make_idle(buffers: Buffers, op: str | None) -> None:
    """Fill the memory with numbers that stay in range through any number of runs in place."""
    for vector in (buffers.source, buffers.result):
        vector.fill_(0 if op == "sum" else 1)


def _calls_of_a_sample(context: Context, reduction: Reduction) -> int:
    """Return the number of runs in a sample, the same on all ranks."""
    calls = 1
    # The first run fills caches; the second tells whether a few more are worth it.
    for runs in (1, 1, _TRIED):
        context.world.comm.Barrier()
        start = perf_counter()
        for _ in range(runs):
            reduction.run()
        seconds = context.largest((perf_counter() - start) / runs)
        if seconds > _LONG:
            return 1
        calls = calls_per_sample(seconds)
    return calls


def _measured(context: Context, part: int, buffers: Buffers, times: array[float]) -> MeasuredTimes:
    """Fold the iterations over ranks; all ranks get the same."""
    comm = context.world.comm
    slowest = array("d", times)
    comm.Allreduce(MPI.IN_PLACE, slowest, op=MPI.MAX)
    medians = comm.allgather(median(times))
    shared = context.read_params(SweepParams).collective in ("allreduce", "broadcast")
    count = part if shared else part * comm.size
    return MeasuredTimes(
        count,
        buffers.result.device,
        (buffers.source.nbytes, buffers.result.nbytes),
        [one / 1000.0 for one in slowest],
        [one / 1000.0 for one in medians],
    )


def _against_native(
    context: Context,
    comm: MPI.Intracomm,
    buffers: Buffers,
    reduction: Reduction,
    seconds: float,
) -> PairedComparison | None:
    """Compare an allreduce with the MPI's own, blocking one; None where it is the native one."""
    params = context.read_params(SweepParams)
    if params.algorithm == "native":
        return None
    native = open_reduction(
        comm, "native", buffers.source, buffers.result, require_value(params.op)
    )
    if params.algorithm == "nccl":
        # By way of the host it may take a hundred times as long: turns are by the slower one.
        seconds = max(seconds, _time_reduction(context, native))
    against = compare_interleaved(comm, reduction.run, native.run, seconds, params.iterations)
    native.free()
    return against


def _time_reduction(context: Context, reduction: Reduction) -> float:
    """Return the seconds of the second run; all ranks get the same."""
    reduction.run()
    context.world.comm.Barrier()
    start = perf_counter()
    reduction.run()
    return context.largest(perf_counter() - start)


class WrongElement:
    """A collective with one wrong element in its result after each run.

    Args:
        reduction: The collective.
        result: Its result.

    Raises:
        CannotRunError: The result has no elements.
    """

    def __init__(self, reduction: Reduction, result: torch.Tensor) -> None:
        if not result.numel():
            raise CannotRunError("wrong-element: the result has no elements; take a larger size")
        self._reduction = reduction
        self._victim = result[result.numel() // 2]

    @property
    def traffic(self) -> RankTraffic | None:
        return self._reduction.traffic

    def run(self) -> None:
        self._reduction.run()
        self._spoil()

    def start(self) -> None:
        self._reduction.start()

    def poll(self) -> bool:
        return self._reduction.poll()

    def wait(self) -> None:
        self._reduction.wait()
        self._spoil()

    def free(self) -> None:
        self._reduction.free()

    def _spoil(self) -> None:
        """Give the element the wrong sign; a zero becomes one."""
        value = self._victim
        value.copy_(torch.where(value == 0, torch.ones_like(value), -value))


class RotatingReduction:
    """Reductions that are run in turn, one for each root.

    Args:
        order: The ranks by position in the first run; each run begins one position further.
        open_: Opens the reduction of an order.
    """

    def __init__(self, order: Sequence[int], open_: Callable[[list[int]], Reduction]) -> None:
        turned = ([*order[first:], *order[:first]] for first in range(len(order)))
        self._turns = [open_(order) for order in turned]
        self._at = -1

    @property
    def traffic(self) -> RankTraffic:
        """The traffic of this rank in an average run, bytes and messages rounded up."""
        all_ = [turn.traffic for turn in self._turns if turn.traffic is not None]
        return RankTraffic(
            bytes=-(-sum(one.bytes for one in all_) // len(all_)),
            messages=-(-sum(one.messages for one in all_) // len(all_)),
            rounds=max(one.rounds for one in all_),
        )

    def run(self) -> None:
        self._next().run()

    def start(self) -> None:
        self._next().start()

    def poll(self) -> bool:
        return self._turns[self._at].poll()

    def wait(self) -> None:
        self._turns[self._at].wait()

    def free(self) -> None:
        for turn in self._turns:
            turn.free()

    def _next(self) -> Reduction:
        self._at = (self._at + 1) % len(self._turns)
        return self._turns[self._at]
