"""Slots in the memory of a sender, from which receivers read pieces, with flags.

A sender packs a piece into one of the two slots of its message, alternately, and sets a flag. The
receiver reads the piece there and sets another flag. Only then is the slot reused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from mpi4py import MPI

from spbench_parallel.groups import is_on_one_host
from spbench_parallel.spatial.transports import TransportError, TransportSpec

LINE = 64
"""Bytes of a cache line. No two flags share a line, nor do a flag and a piece."""
SLOTS = 2
"""Slots per message: a sender may pack the next piece while the last one is read."""
_FLAG_STRIDE = LINE // 8  # distance between flags in 64-bit numbers
_SPINS = 200  # reads of a flag before the core is yielded to other ranks


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """The position of a message's slots in its sender's memory.

    Attributes:
        message_index: The index of its flags.
        offset: The first byte of its slots.
        slot_bytes: The bytes from one slot to the next.
    """

    message_index: int
    offset: int
    slot_bytes: int


def plan_slots(
    spec: TransportSpec, offset: int, alignment: int = LINE
) -> tuple[list[SlotLayout], int]:
    """Return the slot layouts of a rank's messages, and the end of the last slot.

    The first slot begins at byte ``offset``; slots are aligned to ``alignment`` bytes.
    """
    layouts = []
    for index, view in enumerate(spec.outgoing):
        slot_bytes = -(-view.numel() * view.element_size() // alignment) * alignment
        layouts.append(SlotLayout(index, offset, slot_bytes))
        offset += SLOTS * slot_bytes
    return layouts, offset


def count_flag_bytes(spec: TransportSpec) -> int:
    """Return the size of the flags of a rank's messages."""
    return 2 * LINE * len(spec.outgoing)


def view_as_piece(
    vector: torch.Tensor, shape: Sequence[int], *, channels_last: bool
) -> torch.Tensor:
    """Return a vector as a piece in its shape and memory format."""
    batch, channels, rows, cols = shape
    if channels_last:
        return vector.view(batch, rows, cols, channels).permute(0, 3, 1, 2)
    return vector.view(batch, channels, rows, cols)


class SegmentWindow:
    """An MPI shared-memory window with a segment per rank of a host.

    All ranks must create and free it. It is initially filled with zeros.
    """

    def __init__(self, comm: MPI.Intracomm, segment_bytes: int) -> None:
        self._window = MPI.Win.Allocate_shared(max(segment_bytes, LINE), 1, comm=comm)
        self._window.Lock_all()
        self.sync = self._window.Sync
        self.get_segment(comm.rank)[:] = bytes(max(segment_bytes, LINE))
        self.sync()
        comm.Barrier()  # no rank may read a flag before all segments are cleared

    def get_segment(self, rank: int) -> memoryview:
        """Return the segment of a rank."""
        memory, _ = self._window.Shared_query(rank)
        return memoryview(memory)  # type: ignore[arg-type]

    def free(self) -> None:
        """Free the memory."""
        self._window.Unlock_all()
        self._window.Free()


class SlotMessage:
    """Flags and slots of one message, for sender and receiver.

    Args:
        segment: The sender's segment of the window, with its flags.
        layout: The position of the message.
        slots: Its slots.
    """

    def __init__(
        self, segment: memoryview, layout: SlotLayout, slots: Sequence[torch.Tensor]
    ) -> None:
        self._flags = segment[: segment.nbytes // 8 * 8].cast("q")
        self._ready_index = 2 * layout.message_index * _FLAG_STRIDE
        self._taken_index = self._ready_index + _FLAG_STRIDE
        self.slots = slots

    def wait_ready(self, exchange_number: int) -> None:
        """Wait until the piece of this exchange has been packed."""
        self._wait_for_flag(self._ready_index, exchange_number)

    def wait_taken(self, exchange_number: int) -> None:
        """Wait until the piece of this exchange has been read."""
        self._wait_for_flag(self._taken_index, exchange_number)

    def mark_ready(self, exchange_number: int) -> None:
        """Signal the reader that the piece of this exchange has been packed."""
        self._flags[self._ready_index] = exchange_number

    def mark_taken(self, exchange_number: int) -> None:
        """Signal the sender that the piece of this exchange has been read."""
        self._flags[self._taken_index] = exchange_number

    def _wait_for_flag(self, flag_index: int, exchange_number: int) -> None:
        flags = self._flags
        for _ in range(_SPINS):
            if flags[flag_index] >= exchange_number:
                return
        while flags[flag_index] < exchange_number:
            os.sched_yield()


class SlotTransport:
    """A transport over slots; subclasses start exchanges and wait for them.

    Args:
        spec: The pieces to carry.
        outgoing: The messages that this rank sends, in the order of the targets.
        incoming: The messages that it receives, in the order of the sources.
    """

    memory_path = None

    def __init__(
        self,
        spec: TransportSpec,
        outgoing: Sequence[SlotMessage],
        incoming: Sequence[SlotMessage],
    ) -> None:
        self._spec = spec.drop_views()
        self._outgoing = outgoing
        self._incoming = incoming
        self._exchange_number = 0
        self._received_by_slot = [
            [message.slots[slot] for message in incoming] for slot in range(SLOTS)
        ]
        self.bind(spec.outgoing)

    @property
    def received(self) -> Sequence[torch.Tensor]:
        return self._received_by_slot[self._exchange_number % SLOTS]

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        self._views = list(outgoing)

    def unbind(self) -> None:
        self._views = []

    def progress(self) -> None:
        """Do nothing: a piece is available as soon as its sender has packed it."""

    def unpack(self) -> None:
        if self._spec.into is not None:
            for target, piece in zip(self._spec.into, self.received, strict=True):
                target.copy_(piece)

    def _drop_views(self) -> None:
        self._outgoing = []
        self._incoming = []
        self._received_by_slot = [[] for _ in range(SLOTS)]
        self.unbind()


class SharedTransport(SlotTransport):
    """Transport ``shm``: shared memory of a host; MPI is needed only for set-up.

    Raises:
        TransportError: The ranks are not all on one host.
    """

    def __init__(self, spec: TransportSpec) -> None:
        comm = spec.comm
        if not is_on_one_host(comm):
            raise TransportError("transport shm: the ranks are not all on one host; use auto")
        layouts, segment_bytes = plan_slots(spec, count_flag_bytes(spec))
        self._window = SegmentWindow(comm, segment_bytes)
        layout_by_target_by_rank = comm.allgather(dict(zip(spec.targets, layouts, strict=True)))

        def make_message(sender: int, layout: SlotLayout, shape: Sequence[int]) -> SlotMessage:
            segment = self._window.get_segment(sender)
            slot_offsets = (layout.offset + slot * layout.slot_bytes for slot in range(SLOTS))
            return SlotMessage(
                segment,
                layout,
                [_view_slot(segment, offset, shape, spec) for offset in slot_offsets],
            )

        super().__init__(
            spec,
            [
                make_message(comm.rank, layout, view.shape)
                for layout, view in zip(layouts, spec.outgoing, strict=True)
            ],
            [
                make_message(source, layout_by_target_by_rank[source][comm.rank], shape)
                for source, shape in zip(spec.sources, spec.shapes, strict=True)
            ],
        )

    def start(self) -> None:
        self._exchange_number += 1
        exchange_number = self._exchange_number
        slot_index = self._exchange_number % SLOTS
        for message, view in zip(self._outgoing, self._views, strict=True):
            message.wait_taken(exchange_number - SLOTS)
            message.slots[slot_index].copy_(view)
            self._window.sync()  # the piece must be visible before its flag
            message.mark_ready(exchange_number)

    def wait(self) -> None:
        for message in self._incoming:
            message.wait_ready(self._exchange_number)
        self._window.sync()

    def release(self) -> None:
        self._window.sync()
        for message in self._incoming:
            message.mark_taken(self._exchange_number)

    def poison(self) -> None:
        """Fill the own outgoing slots; a barrier must precede the next `start`."""
        for message in self._outgoing:
            for slot in message.slots:
                slot.fill_(float("nan"))

    def free(self) -> None:
        self._drop_views()
        self._window.free()


def _view_slot(
    segment: memoryview, first_byte: int, shape: Sequence[int], spec: TransportSpec
) -> torch.Tensor:
    vector = torch.frombuffer(segment, dtype=spec.dtype, offset=first_byte, count=prod(shape))
    return view_as_piece(vector, shape, channels_last=spec.channels_last)
