"""Slots in the memory of a sender, from which receivers read pieces, and flags that tell of them.

A sender packs a piece into one of its message's two slots, by turns, and says that it is ready. The
receiver reads it there, and says that it was taken; only then is the slot filled again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI

from spbench_parallel.spatial.transports import TransportSpec

LINE = 64
"""Bytes of a cache line: no two flags share one, and no piece shares one with a flag."""
SLOTS = 2
"""A sender may pack the next piece while the last one is still read."""
_NUMBERS = LINE // 8
"""64-bit numbers from one flag to the next."""
_LOOKS = 200
"""Looks at a flag before the core is offered to others."""


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """The place of a message in its sender's memory.

    Attributes:
        index: The number of its flags.
        offset: The first byte of its slots.
        nbytes: The bytes from one slot to the next.
    """

    index: int
    offset: int
    nbytes: int


def lay_out_slots(
    wiring: TransportSpec, start: int, unit: int = LINE
) -> tuple[list[SlotLayout], int]:
    """Return the places of a rank's messages, with slots from a byte on, and the byte behind them.

    Slots start at multiples of ``unit``.
    """
    places = []
    for index, view in enumerate(wiring.outgoing):
        nbytes = -(-view.numel() * view.element_size() // unit) * unit
        places.append(SlotLayout(index, start, nbytes))
        start += SLOTS * nbytes
    return places, start


def flag_bytes(wiring: TransportSpec) -> int:
    """Return the bytes that the flags of a rank's messages take."""
    return 2 * LINE * len(wiring.outgoing)


def view_as_piece(flat: torch.Tensor, shape: Sequence[int], *, channels_last: bool) -> torch.Tensor:
    """Return a vector as the piece that lies in it."""
    batch, channels, rows, cols = shape
    if channels_last:
        return flat.view(batch, rows, cols, channels).permute(0, 3, 1, 2)
    return flat.view(batch, channels, rows, cols)


class SegmentWindow:
    """A window of MPI with a segment of each rank's, in memory of the host that all of them share.

    All ranks must make it and free it. It is full of zeros when it has been made.
    """

    def __init__(self, comm: MPI.Intracomm, nbytes: int) -> None:
        self._window = MPI.Win.Allocate_shared(max(nbytes, LINE), 1, comm=comm)
        self._window.Lock_all()
        self.sync = self._window.Sync
        self.get_segment(comm.rank)[:] = bytes(max(nbytes, LINE))
        self.sync()
        comm.Barrier()  # nobody may take what was in the memory before for a flag

    def get_segment(self, rank: int) -> memoryview:
        """Return the segment of a rank."""
        memory, _ = self._window.Shared_query(rank)
        return memoryview(memory)  # type: ignore[arg-type]

    def free(self) -> None:
        """Give the memory back."""
        self._window.Unlock_all()
        self._window.Free()


class SlotMessage:
    """Flags and slots of one message, as sender and receiver see them.

    Args:
        segment: The sender's segment of the window, with its flags.
        place: The place of the message.
        slots: Its slots.
    """

    def __init__(
        self, segment: memoryview, place: SlotLayout, slots: Sequence[torch.Tensor]
    ) -> None:
        self._flags = segment[: segment.nbytes // 8 * 8].cast("q")
        self._ready = 2 * place.index * _NUMBERS
        self._taken = self._ready + _NUMBERS
        self.slots = slots

    def wait_ready(self, exchange: int) -> None:
        """Return when the piece of this exchange has been packed."""
        self._await(self._ready, exchange)

    def wait_taken(self, exchange: int) -> None:
        """Return when the piece of this exchange has been read."""
        self._await(self._taken, exchange)

    def mark_ready(self, exchange: int) -> None:
        """Tell the reader that the piece of this exchange has been packed."""
        self._flags[self._ready] = exchange

    def mark_taken(self, exchange: int) -> None:
        """Tell the sender that the piece of this exchange has been read."""
        self._flags[self._taken] = exchange

    def _await(self, flag: int, exchange: int) -> None:
        flags = self._flags
        for _ in range(_LOOKS):
            if flags[flag] >= exchange:
                return
        while flags[flag] < exchange:
            os.sched_yield()


class SlotTransport:
    """A transport over slots; its subclasses start exchanges and wait for them.

    Args:
        wiring: The pieces to carry.
        outgoing: The messages that this rank sends, in the order of the targets.
        incoming: Those that it receives, in the order of the sources.
    """

    memory_path = None

    def __init__(
        self,
        wiring: TransportSpec,
        outgoing: Sequence[SlotMessage],
        incoming: Sequence[SlotMessage],
    ) -> None:
        self._wiring = wiring.without_views()
        self._out = outgoing
        self._in = incoming
        self._exchange = 0
        self._landed = [[message.slots[slot] for message in incoming] for slot in range(SLOTS)]
        self.bind(wiring.outgoing)

    @property
    def received(self) -> Sequence[torch.Tensor]:
        return self._landed[self._exchange % SLOTS]

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        self._views = list(outgoing)

    def unbind(self) -> None:
        self._views = []

    def progress(self) -> None:
        """Do nothing: a piece is there as soon as its sender has packed it."""

    def unpack(self) -> None:
        if self._wiring.into is not None:
            for target, piece in zip(self._wiring.into, self.received, strict=True):
                target.copy_(piece)

    def _forget(self) -> None:
        """Drop all views of slots."""
        self._out = []
        self._in = []
        self._landed = [[] for _ in range(SLOTS)]
        self.unbind()
