"""The benchmark ``halo.exchange``: how long tiles take to get their neighbours' borders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from spbench_workers import device
from spbench_workers.comm import rest
from spbench_workers.context import Context
from spbench_workers.halo.faults import exchange_class
from spbench_workers.layout import Box, Grid, parse_pair
from spbench_workers.link.pair import one_way_seconds
from spbench_workers.spatial.exchange import HaloExchange
from spbench_workers.spatial.partition import HaloTable
from spbench_workers.spatial.pixels import Image
from spbench_workers.timing import measure

CHECKED_ROUNDS = 2
"""Rounds of fresh data that are checked before the timed loop, and again after it."""
LIMIT_TRIPS = 50


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How far the worst checked round is from what it should be."""

    error: float = 0.0
    detail: str = ""

    def worse(self, other: Mismatch) -> Mismatch:
        """Return the first of the two that is wrong; a NaN is wrong as well."""
        return other if self.error == 0.0 else self


def run(context: Context) -> None:
    """Run the case."""
    params, comm = context.params, context.world.comm
    table = table_of(context)
    place = device.choose(params["device"], context.world.local_rank)
    exchange = exchange_class(context, table)(
        comm,
        table,
        batch=params["batch_size"],
        channels=params["in_channels"],
        dtype=device.TORCH_DTYPES[params["dtype"]],
        device=place,
    )
    image = Image(
        params["batch_size"],
        params["in_channels"],
        table.height,
        table.width,
        context.seed_for("image"),
    )
    _fill(exchange, image, table.tile(comm.rank), 0)
    exchange.run()
    worst = _checked_rounds(context, exchange, image, table, first=1)
    times = measure(context, _timed(exchange, place))
    worst = worst.worse(_checked_rounds(context, exchange, image, table, first=1 + CHECKED_ROUNDS))
    context.check("halo", worst.error, 0.0, worst.detail)
    context.metric("bytes_sent", exchange.bytes_sent)
    context.metric("messages_sent", exchange.messages_sent)
    context.metric("bandwidth_gb_s", exchange.bytes_sent / (median(times) * 1e6))
    _give_limit(context, exchange)


def table_of(context: Context) -> HaloTable:
    """Return the table of messages that the case's parameters describe."""
    params = context.params
    height, width = parse_pair(params["image_size"])
    return HaloTable(Grid(*parse_pair(params["grid"])), height, width, params["halo_len"])


def _timed(exchange: HaloExchange, place: torch.device) -> Callable[[], object]:
    if place.type == "cpu":
        return exchange.run

    def exchange_and_wait() -> None:
        exchange.run()
        device.synchronize(place)

    return exchange_and_wait


def _fill(exchange: HaloExchange, image: Image, tile: Box, round_: int) -> None:
    """Give the tile fresh values, and poison what the exchange is to fill."""
    exchange.padded.fill_(float("nan"))
    exchange.tile.copy_(image.box(tile, round_, exchange.padded.dtype))


def _checked_rounds(
    context: Context, exchange: HaloExchange, image: Image, table: HaloTable, first: int
) -> Mismatch:
    worst = Mismatch()
    rank = context.world.rank
    for done in range(CHECKED_ROUNDS):
        context.progress("check", done, CHECKED_ROUNDS)
        _fill(exchange, image, table.tile(rank), first + done)
        exchange.run()
        expected = image.box(table.padded(rank), first + done, exchange.padded.dtype)
        worst = worst.worse(compare(exchange.padded.cpu(), expected, table.padded(rank)))
    return worst


def compare(got: torch.Tensor, expected: torch.Tensor, box: Box) -> Mismatch:
    """Compare value by value; the detail names the first wrong pixel in global coordinates."""
    wrong = got != expected
    count = int(wrong.sum())
    if count == 0:
        return Mismatch()
    image, channel, row, col = (int(index) for index in wrong.nonzero()[0])
    error = float((got.double() - expected.double()).abs().max())
    return Mismatch(
        error,
        f"{count} of {wrong.numel()} values are wrong, the first at row {box.rows[0] + row}, "
        f"col {box.cols[0] + col} (image {image}, channel {channel}): "
        f"{float(got[image, channel, row, col]):g}, "
        f"not {float(expected[image, channel, row, col]):g}",
    )


def _give_limit(context: Context, exchange: HaloExchange) -> None:
    """Send the longest message of all to and fro, with nothing else going on."""
    comm, rank = context.world.comm, context.world.rank
    longest = exchange.longest_message
    count, negative, target = max(comm.allgather((longest[0], -rank, longest[1])))
    source = -negative
    if count:
        seconds = 0.0
        if rank in (source, target):
            peer = source + target - rank
            seconds = one_way_seconds(comm, peer, rank == source, count, LIMIT_TRIPS)
        rest(comm)
        if rank == source:
            by = f"one-way ping-pong of the longest message, {count} B, rank {source} to {target}"
            context.limit("time_ms", seconds * 1000.0, by)
