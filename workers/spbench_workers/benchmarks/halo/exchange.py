"""Benchmark ``halo.exchange``: a halo exchange between tiles."""

from __future__ import annotations

from collections.abc import Callable

import torch

from spbench_core.layout.partition import Partition, make_halo_transfers
from spbench_core.layout.tiles import Grid
from spbench_parallel.device.formats import TORCH_DTYPES
from spbench_parallel.device.streams import is_gpu, synchronize_stream
from spbench_parallel.spatial.exchange import Exchange, view_box
from spbench_parallel.spatial.pixels import RandomImage
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.halo.compare import compare_pixels
from spbench_workers.benchmarks.halo.faults import inject_halo_fault
from spbench_workers.benchmarks.halo.params import ExchangeParams
from spbench_workers.benchmarks.halo.report import (
    measure_phases,
    report_choice,
    report_limits,
    report_phases,
    report_traffic,
    time_waits,
)
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device
from spbench_workers.timing import measure

CHECKED_ROUNDS = 2
"""Rounds of fresh data checked before the timed loop, and again after it."""


class PaddedTile:
    """A tile inside a margin that an exchange fills with the neighbours' pixels.

    Attributes:
        owned_box: The pixels of this rank.
        padded_box: The pixels of this rank and its halo.
        padded: The values of `padded_box`, ``batch x channels x rows x cols``.
        tile: The view of `padded` that this rank owns.
        outgoing: The views that are sent to others.
        incoming: The views of the halo, received from others.
        halo_boxes: The boxes of `incoming` in the image.
        exchange: The halo exchange.
    """

    def __init__(self, context: Context, device: torch.device) -> None:
        params = context.read_params(ExchangeParams)
        comm = context.world.comm
        owned = Partition.from_grid(Grid(*params.grid), *params.image_size)
        transfers = make_halo_transfers(owned, params.halo_len)
        self.owned_box = owned.tile(comm.rank)
        self.padded_box = transfers.needed[comm.rank]
        shape = (
            params.batch_size,
            params.in_channels,
            self.padded_box.height,
            self.padded_box.width,
        )
        dtype = TORCH_DTYPES[params.dtype]
        layout = torch.channels_last if params.channels_last else torch.contiguous_format

        self.padded = torch.empty(shape, dtype=dtype, device=device, memory_format=layout)
        self.tile = view_box(self.padded, self.padded_box, self.owned_box)

        sent_pieces = transfers.list_sent(comm.rank)
        received_pieces = transfers.list_received(comm.rank)
        self.outgoing = [view_box(self.padded, self.padded_box, piece.box) for piece in sent_pieces]
        self.halo_boxes = [piece.box for piece in received_pieces]
        self.incoming = [view_box(self.padded, self.padded_box, box) for box in self.halo_boxes]

        self.exchange = Exchange(
            comm,
            transfers,
            self.outgoing,
            batch=shape[0],
            channels=shape[1],
            dtype=dtype,
            device=device,
            into=self.incoming,
            channels_last=params.channels_last,
            transport=params.transport,
        )

    def fill(self, image: RandomImage, round_: int) -> None:
        """Fill the tile with fresh values and its halo with NaN."""
        self.padded.fill_(float("nan"))
        self.tile.copy_(
            image.make_box(self.owned_box, round_, self.padded.dtype, self.padded.device)
        )

    def compare(self, image: RandomImage, round_: int) -> WorstError:
        """Compare tile and halo with the image, bit for bit.

        On a GPU the expected values are generated on the GPU, which is far faster. Halos are also
        compared with values generated on the host.
        """
        dtype = self.padded.dtype
        device = self.padded.device
        expected = image.make_box(self.padded_box, round_, dtype, device)
        if not torch.equal(self.padded, expected):
            return compare_pixels(self.padded.cpu(), expected.cpu(), self.padded_box)
        worst = WorstError(keeps_first=True)
        if is_gpu(device):
            for box, values in zip(self.halo_boxes, self.incoming, strict=True):
                expected_by_host = image.make_box(box, round_, dtype)
                worst.merge(compare_pixels(values.cpu(), expected_by_host, box))
        return worst


def run(context: Context) -> None:
    """Run the case."""
    params = context.read_params(ExchangeParams)
    device = choose_device(context)
    padded_tile = PaddedTile(context, device)
    exchange = padded_tile.exchange
    report_choice(context, exchange)
    inject_halo_fault(context, exchange)
    size = params.image_size
    image = RandomImage(params.batch_size, params.in_channels, *size, context.seed_for("image"))
    padded_tile.fill(image, 0)
    exchange.run()
    worst = _check_rounds(context, padded_tile, image, first=1)
    with time_waits([exchange], device) as waits:
        times_ms = measure(context, _make_timed_body(exchange, device), waits=waits)
    worst.merge(_check_rounds(context, padded_tile, image, first=1 + CHECKED_ROUNDS))
    context.check_worst("halo", worst)
    slowest_ms = context.median_of_slowest(times_ms)
    report_traffic(context, exchange, slowest_ms)
    phases = measure_phases(context, exchange, device)
    report_phases(context, phases, padded_tile.outgoing, device)
    pieces = padded_tile.outgoing, padded_tile.incoming
    report_limits(context, exchange, *pieces, slowest_ms, "time_ms", device)
    exchange.free()


def _make_timed_body(exchange: Exchange, device: torch.device) -> Callable[[], object]:
    if not is_gpu(device):
        return exchange.run

    def exchange_and_wait() -> None:
        exchange.run()
        synchronize_stream(device)

    return exchange_and_wait


def _check_rounds(
    context: Context, padded_tile: PaddedTile, image: RandomImage, first: int
) -> WorstError:
    worst = WorstError(keeps_first=True)
    for done in range(CHECKED_ROUNDS):
        context.progress("check", done, CHECKED_ROUNDS)
        padded_tile.fill(image, first + done)
        # Wait until no other rank still reads the memory that is poisoned here.
        context.world.comm.Barrier()
        padded_tile.exchange.poison()
        padded_tile.exchange.run()
        worst.merge(padded_tile.compare(image, first + done))
    return worst
