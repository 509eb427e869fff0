"""Times of a convolution over tiles: parts, backward, and a single-rank baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import torch
from torch.nn import functional

from spbench_core.number_text import format_duration
from spbench_parallel.device.failures import is_out_of_memory
from spbench_parallel.device.memory import read_free_bytes, release_memory
from spbench_parallel.device.streams import is_gpu, synchronize_stream
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.execution import TiledExecution
from spbench_parallel.spatial.gather import Gather
from spbench_parallel.spatial.gradients import allreduce_sum
from spbench_workers.benchmarks.halo.operator_checks import OperatorCase
from spbench_workers.benchmarks.halo.report import (
    measure_phases,
    report_limits,
    report_phases,
    report_traffic,
    time_calls,
)
from spbench_workers.comm import is_oversubscribed
from spbench_workers.context import Context
from spbench_workers.timing import compute_hidden_share

ROUNDS = 10
"""Iterations of each timing."""
MIN_SEQUENTIAL_ROUNDS = 3
"""Iterations of the whole image that are always timed."""
MAX_SEQUENTIAL_SECONDS = 1.0
"""Seconds of the whole image after which no further iteration begins."""


@dataclass(frozen=True)
class TiledConvolution:
    """A convolution over tiles, with its input.

    Attributes:
        module: The convolution.
        execution: The chosen execution, overlapped or not.
        tile: This rank's part of the input.
        gather: The gather of its halos.
        device: The device of the data.
    """

    module: SpatialConv2d
    execution: TiledExecution
    tile: torch.Tensor
    gather: Gather
    device: torch.device

    def forward(self) -> None:
        """Convolve once, including the exchange."""
        self.module(self.tile)
        synchronize_stream(self.device)


def report_parts(context: Context, convolution: TiledConvolution) -> None:
    """Report the separate times of exchange and computation, and their overlap."""
    gather = convolution.gather
    exchange = convolution.gather.forward
    outgoing = [view_box(convolution.tile, gather.tile, piece.box) for piece in exchange.outgoing]
    incoming = [gather.allocate(piece.box) for piece in exchange.incoming]
    exchange.bind(outgoing)
    phases = measure_phases(context, exchange, convolution.device)
    context.metric("exchange_ms", phases.total)
    report_phases(context, phases, outgoing, convolution.device)
    slowest_ms = context.largest(phases.total)
    report_traffic(context, exchange, slowest_ms)
    context.metric("compute_ms", _measure_compute_ms(context, convolution))
    if convolution.module.tiled.tiling.overlap:
        _report_overlap(context, convolution, phases.total)
    pieces = outgoing, incoming
    report_limits(context, exchange, *pieces, slowest_ms, "exchange_ms", convolution.device)


def _measure_compute_ms(context: Context, convolution: TiledConvolution) -> float:
    """Time the convolution of a tile and its gathered halo, without any exchange."""
    gather = convolution.gather
    operator = convolution.module.operator()
    parts = gather.finish(gather.start(convolution.tile))

    def compute() -> None:
        convolution.execution.compute(convolution.tile, parts, operator)
        synchronize_stream(convolution.device)

    return _measure_median_ms(context, convolution.device, compute)


def _report_overlap(context: Context, convolution: TiledConvolution, exchange_ms: float) -> None:
    """Report the share of the exchange (or shorter computation) that overlap hides.

    The exchange is the time of a rank in the exchange's calls, within convolutions with and without
    overlap, which are interleaved. Copies by the rank's own core are not hidden.
    """
    if is_oversubscribed(context.world):
        if context.world.rank == 0:
            context.log("overlap is not given: there are more ranks than cores")
        return
    execution = convolution.module.tiled.executions[True]
    tile = convolution.tile
    operator = convolution.module.operator()
    exchange = execution.gathers.get(tile).forward

    def convolve(overlap: bool) -> None:
        execution.run(tile, operator, overlap=overlap)
        synchronize_stream(convolution.device)

    exchange_seconds_by_overlap: dict[bool, list[float]] = {True: [], False: []}
    total_seconds_by_overlap: dict[bool, list[float]] = {True: [], False: []}
    for overlap in [True, False] * ROUNDS:
        synchronize_stream(convolution.device)
        context.world.comm.Barrier()
        with time_calls(exchange) as call_seconds:
            total_seconds_by_overlap[overlap].append(_time_call(partial(convolve, overlap)))
        exchange_seconds_by_overlap[overlap].append(sum(call_seconds))
    exposed_seconds = median(exchange_seconds_by_overlap[True])
    exchange_seconds = median(exchange_seconds_by_overlap[False])
    sequential_seconds = median(total_seconds_by_overlap[False])
    if is_gpu(convolution.device):
        # The calls return before the GPU is done, so the hidden time shows only in the totals.
        exchange_seconds = exchange_ms / 1000.0
        exposed_seconds = exchange_seconds - (
            sequential_seconds - median(total_seconds_by_overlap[True])
        )
    if convolution.gather.forward.incoming:
        context.metric(
            "overlap",
            compute_hidden_share(
                exchange_seconds, exposed_seconds, sequential_seconds - exchange_seconds
            ),
        )


def report_speedup(
    context: Context, convolution: TiledConvolution, case: OperatorCase, time_ms: float
) -> None:
    """Report rank 0's time for the whole image while others sleep, if memory allows."""
    sleep_at_barrier(context.world.comm)
    if context.world.rank == 0:
        sequential_seconds = _time_sequential_if_it_fits(context, convolution, case)
        if sequential_seconds is not None:
            context.metric("sequential_ms", sequential_seconds * 1000.0)
            context.metric("speedup", sequential_seconds * 1000.0 / time_ms)
            if (ranks := context.world.size) > 1:
                baseline = f"one process on the whole image, {format_duration(sequential_seconds)}"
                origin = f"{baseline}, divided by {ranks} ranks"
                context.limit("time_ms", sequential_seconds * 1000.0 / ranks, origin)
    sleep_at_barrier(context.world.comm)


def _time_sequential_if_it_fits(
    context: Context, convolution: TiledConvolution, case: OperatorCase
) -> float | None:
    image = case.image
    gradient = case.gradient
    values = sum(i.batch * i.channels * i.height * i.width for i in (image, gradient))
    # Doubled for the convolution's workspace.
    needed_bytes = 2 * values * case.template.element_size()
    bytes_free = read_free_bytes(convolution.device)
    if needed_bytes > bytes_free:
        context.log(
            f"sequential_ms: {needed_bytes >> 20} MiB are needed, {bytes_free >> 20} are free"
        )
        return None
    try:
        return _time_sequential(convolution, case)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        context.log(f"sequential_ms: there was no memory, {bytes_free >> 20} MiB were free")
        return None
    finally:
        # Other ranks of this GPU need the memory afterwards.
        release_memory()


def _time_sequential(convolution: TiledConvolution, case: OperatorCase) -> float:
    module = convolution.module
    image = case.draw_pixels(case.image, case.input_tiling.partition.image, 0)

    def convolve() -> None:
        functional.conv2d(
            image,
            module.weight,
            module.bias,
            module.stride,
            tuple(int(side) for side in module.padding),
            module.dilation,
        )
        synchronize_stream(convolution.device)

    convolve()
    seconds: list[float] = []
    while len(seconds) < ROUNDS and (
        len(seconds) < MIN_SEQUENTIAL_ROUNDS or sum(seconds) < MAX_SEQUENTIAL_SECONDS
    ):
        seconds.append(_time_call(convolve))
    return median(seconds)


def report_backward(context: Context, convolution: TiledConvolution) -> None:
    """Report the times of backward and of the allreduce of weight gradients in it."""
    module = convolution.module
    tile = convolution.tile.detach().requires_grad_()
    shape = module(tile).shape
    gradient = torch.ones(shape, dtype=tile.dtype, device=tile.device)
    seconds = []
    for _ in range(ROUNDS):
        output = module(tile)
        synchronize_stream(convolution.device)
        context.world.comm.Barrier()
        seconds.append(_time_call(partial(_backward, output, gradient, convolution.device)))
    context.metric("backward_ms", median(seconds) * 1000.0)
    flat_gradients = torch.cat(
        [parameter.detach().reshape(-1) for parameter in module.parameters()]
    ).zero_()
    sum_dtype = module.gradient_dtype

    def sum_up() -> None:
        allreduce_sum(context.world.comm, flat_gradients, sum_dtype)
        synchronize_stream(convolution.device)

    context.metric("gradient_sum_ms", _measure_median_ms(context, convolution.device, sum_up))


def _backward(output: torch.Tensor, gradient: torch.Tensor, device: torch.device) -> None:
    output.backward(gradient)
    synchronize_stream(device)


def _measure_median_ms(context: Context, device: torch.device, body: Callable[[], object]) -> float:
    """Return this rank's median time, ranks starting together. All ranks must call it.

    ``body`` must return only when its work on ``device`` is done.
    """
    seconds = []
    for _ in range(ROUNDS):
        synchronize_stream(device)
        context.world.comm.Barrier()
        seconds.append(_time_call(body))
    return median(seconds) * 1000.0


def _time_call(body: Callable[[], object]) -> float:
    start = perf_counter()
    body()
    return perf_counter() - start
