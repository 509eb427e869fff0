"""Metrics of a sweep: bandwidths, traffic, the model's prediction, native time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
import torch

from spbench_core.number_text import format_duration
from spbench_parallel.device.streams import is_gpu
from spbench_workers.benchmarks.allreduce.entry import SweepParams
from spbench_workers.benchmarks.allreduce.model.cost_model import NOTABLE_FACTOR, describe_deviation
from spbench_workers.benchmarks.allreduce.model.formulas import compute_costs
from spbench_workers.benchmarks.allreduce.model.job_link import measure_link
from spbench_workers.benchmarks.allreduce.model.link_times import BufferBytes, JobLink
from spbench_workers.benchmarks.allreduce.model.prediction import (
    Prediction,
    describe_crossovers,
    find_fastest_algorithm,
    predict,
)
from spbench_workers.benchmarks.allreduce.paired_comparison import PairedComparison
from spbench_workers.benchmarks.allreduce.sweep_sizes import (
    compute_algorithm_bandwidth,
    compute_bus_bandwidth,
)
from spbench_workers.collectives.arithmetic import FORMATS
from spbench_workers.collectives.base import ITEM_BYTES, SCHEDULED, RankTraffic
from spbench_workers.collectives.native import describe_registered_operation
from spbench_workers.comm import is_oversubscribed
from spbench_workers.context import Context


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """The times of a case over all ranks.

    Attributes:
        count: Elements of the size.
        device: The device of this rank's source and result.
        buffer_bytes: Bytes of the source and of the result.
        slowest: Seconds of each iteration on its slowest rank.
        medians: The median seconds of each rank.
    """

    count: int
    device: torch.device
    buffer_bytes: BufferBytes
    slowest: Sequence[float]
    medians: Sequence[float]

    @property
    def seconds(self) -> float:
        """The median over iterations."""
        return median(self.slowest)


def report_traffic(context: Context, traffic: RankTraffic | None, count: int) -> None:
    """Report this rank's traffic from its schedule; libraries do not count it."""
    if traffic is None:
        return
    context.metric("bytes_sent", traffic.bytes)
    context.metric("messages_sent", traffic.messages)
    params = context.read_params(SweepParams)
    ranks = context.world.size
    if context.world.rank == 0:
        # Counting rounds instead of using the formula needs the schedules of all ranks.
        options = {"group": params.group, "chunks": params.chunks}
        costs = compute_costs(params.algorithm, ranks, count, **options)
        context.metric("rounds", costs.rounds)


def report_findings(
    context: Context, measured: MeasuredTimes, comparison: PairedComparison | None, wrong: int
) -> None:
    """Report on rank 0 the metrics that all ranks share. All ranks must call it."""
    params = context.read_params(SweepParams)
    world = context.world
    dtype = FORMATS[params.dtype]
    nccl = params.algorithm == "nccl"
    link = measure_link(world.comm, dtype, params.op or "sum", measured.device, nccl=nccl)
    nbytes = measured.count * dtype.itemsize
    predicted = predict(params, world.size, nbytes, link, measured.buffer_bytes)
    oversubscribed = is_oversubscribed(world)
    if world.rank != 0:
        return
    context.metric("count", measured.count)
    context.metric("algbw_gb_s", compute_algorithm_bandwidth(nbytes, measured.seconds))
    context.metric("busbw_gb_s", _compute_busbw(context, nbytes, measured.seconds))
    _report_link(context, link)
    _report_prediction(context, link, predicted, measured, oversubscribed)
    if nccl and not params.in_place:
        reason = f"NCCL reduces in place: a copy of {nbytes} B on the GPU is in the time"
        context.choice("in place", "off", reason)
    if params.algorithm == "native":
        _report_native_choices(context, link, predicted, measured.seconds, nbytes)
    elif comparison is not None:
        _report_comparison(context, comparison, measured.device)
    print_row(context, _make_row(context, measured, predicted, comparison, wrong))


def _compute_busbw(context: Context, nbytes: int, seconds: float) -> float:
    return compute_bus_bandwidth(
        context.read_params(SweepParams).collective, context.world.size, nbytes, seconds
    )


def _report_link(context: Context, link: JobLink) -> None:
    """Report alpha, beta and gamma of the alpha-beta model."""
    if link.fit is None:
        return
    context.metric("alpha_us", 1e6 * link.fit.alpha.value)
    context.metric("beta_ns", 1e9 * link.fit.beta.value)
    context.metric("gamma_ns", 1e9 * link.fit.gamma.value)


def _report_prediction(
    context: Context,
    link: JobLink,
    predicted: Prediction,
    measured: MeasuredTimes,
    oversubscribed: bool,
) -> None:
    params = context.read_params(SweepParams)
    seconds = measured.seconds
    nbytes = measured.count * ITEM_BYTES[params.dtype]
    context.metric("predicted_ms", 1000.0 * predicted.seconds)
    if not predicted.seconds:
        return
    basis = f"the model of {predicted.basis} on this job's links"
    if link.staging is not None:
        basis += f", and copies from {measured.device.type} to pinned memory and back"
    context.limit("time_ms", 1000.0 * predicted.seconds, basis)
    if params.algorithm not in SCHEDULED:
        return
    deviation = describe_deviation(seconds, predicted.seconds, predicted.interval)
    if deviation is None:
        context.choice("model", "holds", describe_agreement(seconds, predicted.interval))
        return
    remark = ""
    if oversubscribed:
        remark = "; more ranks than cores: links were measured with the others asleep"
    if nbytes > link.max_bytes:
        remark += f"; links were measured up to {link.max_bytes} B"
    context.choice("model", "deviates", deviation + remark)
    context.log(f"the time deviates from the model: {deviation}{remark}")


def describe_agreement(seconds: float, interval: tuple[float, float]) -> str:
    """Return the position of a time relative to the predicted interval it agrees with."""
    low, high = interval
    predicted_text = f"the predicted {format_duration(low)} to {format_duration(high)}"
    if low <= seconds <= high:
        return f"{format_duration(seconds)} is in {predicted_text}"
    end_name, ratio = ("lower", seconds / low) if seconds < low else ("upper", seconds / high)
    tolerated_text = f"{1 / NOTABLE_FACTOR:.3g}x" if seconds < low else f"{NOTABLE_FACTOR:g}x"
    return (
        f"{format_duration(seconds)} is {ratio:.3g}x the {end_name} end of {predicted_text}; "
        f"up to {tolerated_text} is tolerated"
    )


def _report_native_choices(
    context: Context, link: JobLink, predicted: Prediction, seconds: float, nbytes: int
) -> None:
    params = context.read_params(SweepParams)
    ranks = context.world.size
    registered = describe_registered_operation(FORMATS[params.dtype], params.op or "")
    if params.op and registered:
        context.choice("operation", "registered", registered)
    if params.collective != "allreduce" or ranks == 1:
        return
    itemsize = ITEM_BYTES[params.dtype]
    reason = (
        f"of our algorithms {predicted.basis} should take {format_duration(predicted.seconds)} at "
        f"{nbytes} B, the MPI's own choice takes {format_duration(seconds)}; "
        f"by the model the best are {describe_crossovers(ranks, itemsize, link)}"
    )
    context.choice(
        "best by the model", find_fastest_algorithm(ranks, nbytes, itemsize, link), reason
    )


def _report_comparison(
    context: Context, comparison: PairedComparison, device: torch.device
) -> None:
    context.metric("native_ms", 1000.0 * comparison.other_seconds)
    low, high = comparison.interval
    route = ", by way of the host" if is_gpu(device) else ""
    reason = (
        f"{comparison.ratio:.3f} times the MPI's own time{route}, "
        f"95 % interval {low:.3f} to {high:.3f} "
        f"over {comparison.pairs} interleaved pairs of batches"
    )
    context.choice("against native", comparison.outcome, reason)


def _make_row(
    context: Context,
    measured: MeasuredTimes,
    predicted: Prediction,
    comparison: PairedComparison | None,
    wrong: int,
) -> SweepRow:
    params = context.read_params(SweepParams)
    nbytes = measured.count * ITEM_BYTES[params.dtype]
    median_of_medians = median(measured.medians)
    return SweepRow(
        size=nbytes,
        count=measured.count,
        dtype=params.dtype,
        op=params.op or "none",
        algorithm=params.algorithm,
        time=measured.seconds,
        algbw=compute_algorithm_bandwidth(nbytes, measured.seconds),
        busbw=_compute_busbw(context, nbytes, measured.seconds),
        wrong=wrong,
        p99=float(np.percentile(measured.slowest, 99)),
        skew=max(measured.medians) / median_of_medians if median_of_medians else 1.0,
        predicted=predicted.seconds,
        native=None if comparison is None else comparison.other_seconds,
        in_place=params.in_place,
    )


_HEAD = (
    f"# {'size':>11} {'count':>12} {'type':>6} {'redop':>6} {'algorithm':>18} {'time':>10} "
    f"{'algbw':>8} {'busbw':>8} {'#wrong':>7} {'p99':>10} {'skew':>6} {'predicted':>10} "
    f"{'native':>10}",
    f"# {'(B)':>11} {'(elements)':>12} {'':>6} {'':>6} {'':>18} {'(us)':>10} {'(GB/s)':>8} "
    f"{'(GB/s)':>8} {'':>7} {'(us)':>10} {'':>6} {'(us)':>10} {'(us)':>10}",
)


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One row of a sweep, with times in seconds; None if not measured.

    Attributes:
        time: The median over iterations of the slowest rank's time.
        p99: The 99th percentile of the same times.
        skew: The slowest rank's median time over the median of all ranks.
        in_place: Whether the result replaced the source.
    """

    size: int
    count: int
    dtype: str
    op: str
    algorithm: str
    time: float
    algbw: float
    busbw: float
    wrong: int
    p99: float
    skew: float
    predicted: float
    native: float | None
    in_place: bool = False

    @property
    def line(self) -> str:
        """The row as a printed line."""
        native = "" if self.native is None else f"{1e6 * self.native:.2f}"
        return (
            f"  {self.size:>11} {self.count:>12} {self.dtype:>6} {self.op:>6} "
            f"{self.algorithm:>18} {1e6 * self.time:>10.2f} {self.algbw:>8.3f} {self.busbw:>8.3f} "
            f"{self.wrong:>7} {1e6 * self.p99:>10.2f} {self.skew:>6.2f} "
            f"{1e6 * self.predicted:>10.2f} {native:>10}"
        ).rstrip()


_printed_rows: list[SweepRow] = []
"""The rows printed so far in the current sweep."""


def print_row(context: Context, row: SweepRow) -> None:
    """Print a row, with a heading above the first one and averages below the last."""
    params = context.read_params(SweepParams)
    if context.first:
        _printed_rows.clear()
        subject = f"{params.collective}, {params.mode}, {_describe_buffers(params.in_place)}"
        context.say(f"# {subject}, {context.world.size} ranks")
        context.say("# time: median over iterations, each as long as its slowest rank's")
        for line in _HEAD:
            context.say(line)
    elif _printed_rows and _printed_rows[-1].in_place != row.in_place:
        context.say(f"# from here on {_describe_buffers(row.in_place)}")
    _printed_rows.append(row)
    context.say(row.line)
    if context.last:
        wrong = sum(row.wrong for row in _printed_rows)
        context.say(f"# Wrong elements       : {wrong} {'OK' if not wrong else 'FAILED'}")
        context.say(
            f"# Avg bus bandwidth    : {fmean(row.busbw for row in _printed_rows):.6g} GB/s"
        )


def _describe_buffers(in_place: bool) -> str:
    return "in place" if in_place else "out of place"
