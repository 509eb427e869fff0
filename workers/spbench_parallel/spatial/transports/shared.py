"""The transport ``shm``: an MPI shared window within a host, from which receivers read pieces."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from spbench_parallel.groups import is_on_one_host
from spbench_parallel.spatial.transports import TransportError, TransportSpec
from spbench_parallel.spatial.transports.slots import (
    SLOTS,
    SegmentWindow,
    SlotLayout,
    SlotMessage,
    SlotTransport,
    flag_bytes,
    lay_out_slots,
    view_as_piece,
)


class SharedTransport(SlotTransport):
    """A transport through memory that all ranks of a host share; MPI is needed only for set-up.

    Raises:
        TransportError: The ranks are not all on one host.
    """

    def __init__(self, wiring: TransportSpec) -> None:
        comm = wiring.comm
        if not is_on_one_host(comm):
            raise TransportError("transport shm: the ranks are not all on one host; use auto")
        places, total = lay_out_slots(wiring, flag_bytes(wiring))
        self._window = SegmentWindow(comm, total)
        everyones = comm.allgather(dict(zip(wiring.targets, places, strict=True)))

        def message(sender: int, place: SlotLayout, shape: Sequence[int]) -> SlotMessage:
            segment = self._window.get_segment(sender)
            starts = (place.offset + slot * place.nbytes for slot in range(SLOTS))
            return SlotMessage(
                segment, place, [_slot(segment, start, shape, wiring) for start in starts]
            )

        super().__init__(
            wiring,
            [
                message(comm.rank, place, view.shape)
                for place, view in zip(places, wiring.outgoing, strict=True)
            ],
            [
                message(source, everyones[source][comm.rank], shape)
                for source, shape in zip(wiring.sources, wiring.shapes, strict=True)
            ],
        )

    def start(self) -> None:
        self._exchange += 1
        exchange = self._exchange
        slot = self._exchange % SLOTS
        for message, view in zip(self._out, self._views, strict=True):
            message.wait_taken(exchange - SLOTS)
            message.slots[slot].copy_(view)
            self._window.sync()
            message.mark_ready(exchange)

    def wait(self) -> None:
        for message in self._in:
            message.wait_ready(self._exchange)
        self._window.sync()

    def release(self) -> None:
        self._window.sync()
        for message in self._in:
            message.mark_taken(self._exchange)

    def poison(self) -> None:
        """Fill the own outgoing slots; the ranks must meet before the next `start`."""
        for message in self._out:
            for slot in message.slots:
                slot.fill_(float("nan"))

    def free(self) -> None:
        self._forget()
        self._window.free()


def _slot(
    segment: memoryview, start: int, shape: Sequence[int], wiring: TransportSpec
) -> torch.Tensor:
    """Return a piece's tensor over shared memory."""
    flat = torch.frombuffer(segment, dtype=wiring.dtype, offset=start, count=prod(shape))
    return view_as_piece(flat, shape, channels_last=wiring.channels_last)
