"""The transport ``cuda-ipc``: receivers read pieces from the sender's GPU memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from spbench_parallel.device.ipc import DeviceIpc, Handle, OpenedEvent, get_device_ipc
from spbench_parallel.device.streams import get_streams, synchronize_stream
from spbench_parallel.groups import create_on_all_ranks, is_on_one_host
from spbench_parallel.spatial.transports import TransportError, TransportSpec
from spbench_parallel.spatial.transports.slots import (
    SLOTS,
    SegmentWindow,
    SlotLayout,
    SlotMessage,
    SlotTransport,
    count_flag_bytes,
    plan_slots,
    view_as_piece,
)

_ALIGNMENT = 256  # bytes; slots are aligned like blocks of a GPU allocator
_MARKERS = 255  # values 1 to 255, in turn, by which readers recognise a rank's memory


@dataclass(frozen=True, slots=True)
class _Offer:
    """Memory and events that a rank offers to others.

    Attributes:
        packed_event: The handle of its event for packed pieces.
        read_event: The handle of its event for read pieces.
        memory_by_target: A handle of the memory of its slots, for each rank that it sends to.
        layout_by_target: The slot layout of the message to each of these ranks.
    """

    packed_event: bytes
    read_event: bytes
    memory_by_target: dict[int, Handle]
    layout_by_target: dict[int, SlotLayout]


@dataclass(frozen=True, slots=True)
class _OpenedMemory:
    """Memory and events of other ranks that a rank has opened.

    Attributes:
        source_memories: The memory of each source.
        packed_events: The event of each source for packed pieces.
        read_events: The event of each target for read pieces.
    """

    source_memories: list[torch.Tensor]
    packed_events: list[OpenedEvent]
    read_events: list[OpenedEvent]


class CudaIpcTransport(SlotTransport):
    """A transport within a host, without MPI messages and without host memory.

    MPI is needed for set-up only. Pieces are packed on the device's copy stream, so that the GPU
    continues with the work of the current stream. No rank waits for a GPU: flags signal that work
    has been launched, and events make the streams of other ranks wait for it. The guarantees of
    `wait`, `unpack` and `release` hold for later work of the current stream.

    Raises:
        TransportError: The ranks are not all on one host, or one cannot read another's GPU memory.
            It is raised on all ranks.
    """

    def __init__(self, spec: TransportSpec) -> None:
        comm = self._comm = spec.comm
        if not is_on_one_host(comm):
            raise TransportError("transport cuda-ipc: the ranks are not all on one host; use auto")
        ipc = create_on_all_ranks(comm, lambda: get_device_ipc(spec.device), _refusal_error)
        self._ipc = ipc
        self._streams = get_streams(spec.device)
        layouts, memory_bytes = plan_slots(spec, 0, _ALIGNMENT)
        slot_memory = create_on_all_ranks(
            comm, lambda: _allocate_marked(spec, memory_bytes, ipc), _refusal_error
        )
        offer = create_on_all_ranks(
            comm, lambda: _make_offer(spec, slot_memory, layouts, ipc), _refusal_error
        )
        offer_by_rank: list[_Offer] = comm.allgather(offer)
        self._opened = create_on_all_ranks(
            comm, lambda: _open_offers(spec, offer_by_rank, ipc), _refusal_error
        )
        self._window = SegmentWindow(comm, count_flag_bytes(spec))

        def make_message(
            sender: int, sender_memory: torch.Tensor, layout: SlotLayout, shape: Sequence[int]
        ) -> SlotMessage:
            slot_offsets = (layout.offset + slot * layout.slot_bytes for slot in range(SLOTS))
            slots = [_view_slot(sender_memory, offset, shape, spec) for offset in slot_offsets]
            return SlotMessage(self._window.get_segment(sender), layout, slots)

        super().__init__(
            spec,
            [
                make_message(comm.rank, slot_memory, layout, view.shape)
                for layout, view in zip(layouts, spec.outgoing, strict=True)
            ],
            [
                make_message(
                    source, source_memory, offer_by_rank[source].layout_by_target[comm.rank], shape
                )
                for source, source_memory, shape in zip(
                    spec.sources, self._opened.source_memories, spec.shapes, strict=True
                )
            ],
        )

    def start(self) -> None:
        self._exchange_number += 1
        exchange_number = self._exchange_number
        slot_index = self._exchange_number % SLOTS
        for message in self._outgoing:
            message.wait_taken(exchange_number - SLOTS)
        self._window.sync()
        self._streams.fork_copy_stream()
        with self._streams.use_copy_stream():
            for message, view, read_event in zip(
                self._outgoing, self._views, self._opened.read_events, strict=True
            ):
                read_event.wait()  # the flag only means that the reader's copy was launched
                message.slots[slot_index].copy_(view)
            # Record before the flags are set: readers wait for the latest record.
            self._ipc.packed_event.record()
        self._window.sync()
        for message in self._outgoing:
            message.mark_ready(exchange_number)

    def wait(self) -> None:
        for message in self._incoming:
            message.wait_ready(self._exchange_number)
        self._window.sync()
        for packed_event in self._opened.packed_events:
            packed_event.wait()
        self._streams.join_copy_stream()

    def release(self) -> None:
        # Record before the flags are set: senders wait for the latest record.
        self._ipc.read_event.record()
        self._window.sync()
        for message in self._incoming:
            message.mark_taken(self._exchange_number)

    def poison(self) -> None:
        """Fill the own outgoing slots; a barrier must precede the next `start`."""
        for message, read_event in zip(self._outgoing, self._opened.read_events, strict=True):
            read_event.wait()
            for slot in message.slots:
                slot.fill_(float("nan"))

    def free(self) -> None:
        # Wait first, because torch unmaps memory before it waits. If an exception skips `free`,
        # memory may stay mapped until exit.
        synchronize_stream(self._spec.device)
        own_messages = self._outgoing
        self._opened = _OpenedMemory([], [], [])
        self._drop_views()
        self._comm.Barrier()
        del own_messages  # after the barrier no rank has this memory open
        self._window.free()


def _allocate_marked(spec: TransportSpec, memory_bytes: int, ipc: DeviceIpc) -> torch.Tensor:
    """Return memory for slots, filled with a value that identifies the rank."""
    memory = torch.empty(max(memory_bytes, _ALIGNMENT), dtype=torch.uint8, device=spec.device)
    memory.fill_(_marker_of_rank(spec.comm.rank))
    # Readers wait for the latest record only, so it must cover pieces packed on the copy stream.
    get_streams(spec.device).join_copy_stream()
    ipc.packed_event.record()
    return memory


def _make_offer(
    spec: TransportSpec, memory: torch.Tensor, layouts: Sequence[SlotLayout], ipc: DeviceIpc
) -> _Offer:
    packed_event, read_event = ipc.event_handles()
    return _Offer(
        packed_event,
        read_event,
        {target: ipc.share(memory) for target in spec.targets},
        dict(zip(spec.targets, layouts, strict=True)),
    )


def _open_offers(
    spec: TransportSpec, offer_by_rank: Sequence[_Offer], ipc: DeviceIpc
) -> _OpenedMemory:
    """Open the offers of other ranks, and check the values in their memory.

    Raises:
        RuntimeError: Memory or an event cannot be opened, or the memory belongs to another rank.
    """
    opened = _OpenedMemory(
        [
            ipc.open_memory(offer_by_rank[source].memory_by_target[spec.comm.rank])
            for source in spec.sources
        ],
        [ipc.open_event(offer_by_rank[source].packed_event) for source in spec.sources],
        [ipc.open_event(offer_by_rank[target].read_event) for target in spec.targets],
    )
    for source, memory, packed_event in zip(
        spec.sources, opened.source_memories, opened.packed_events, strict=True
    ):
        packed_event.wait()
        if not bool((memory == _marker_of_rank(source)).all()):
            raise RuntimeError(f"reads other bytes than rank {source} has in its GPU's memory")
    return opened


def _marker_of_rank(rank: int) -> int:
    return 1 + rank % _MARKERS


def _refusal_error(rank: int, reason: str) -> TransportError:
    return TransportError(
        f"transport cuda-ipc: rank {rank} cannot share memory of GPUs with others here ({reason}); "
        "use auto"
    )


def _view_slot(
    memory: torch.Tensor, first_byte: int, shape: Sequence[int], spec: TransportSpec
) -> torch.Tensor:
    vector = memory[first_byte : first_byte + prod(shape) * spec.dtype.itemsize].view(spec.dtype)
    return view_as_piece(vector, shape, channels_last=spec.channels_last)
