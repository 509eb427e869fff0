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
    flag_bytes,
    lay_out_slots,
    view_as_piece,
)

_ALIGNMENT = 256  # bytes; slots are aligned like blocks of a GPU allocator
_FILL_VALUES = 255  # ranks fill their memory with values 1 to 255, in turn


@dataclass(frozen=True, slots=True)
class _Offer:
    """Memory and events that a rank offers to others.

    Attributes:
        packed: The handle of its event for packed pieces.
        read: The handle of its event for read pieces.
        memory: A handle of the memory of its slots, for each rank that it sends to.
        layouts: The slot layout of the message to each of these ranks.
    """

    packed: bytes
    read: bytes
    memory: dict[int, Handle]
    layouts: dict[int, SlotLayout]


@dataclass(frozen=True, slots=True)
class _OpenedMemory:
    """Memory and events of other ranks that a rank has opened.

    Attributes:
        memory: The memory of each source.
        packed: The event of each source for packed pieces.
        read: The event of each target for read pieces.
    """

    memory: list[torch.Tensor]
    packed: list[OpenedEvent]
    read: list[OpenedEvent]


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
        layouts, nbytes = lay_out_slots(spec, 0, _ALIGNMENT)
        memory = create_on_all_ranks(
            comm, lambda: _allocate_marked(spec, nbytes, ipc), _refusal_error
        )
        offer = create_on_all_ranks(
            comm, lambda: _make_offer(spec, memory, layouts, ipc), _refusal_error
        )
        offers: list[_Offer] = comm.allgather(offer)
        self._opened = create_on_all_ranks(
            comm, lambda: _open_offers(spec, offers, ipc), _refusal_error
        )
        self._window = SegmentWindow(comm, flag_bytes(spec))

        def make_message(
            sender: int, sender_memory: torch.Tensor, layout: SlotLayout, shape: Sequence[int]
        ) -> SlotMessage:
            starts = (layout.offset + slot * layout.nbytes for slot in range(SLOTS))
            slots = [_view_slot(sender_memory, start, shape, spec) for start in starts]
            return SlotMessage(self._window.get_segment(sender), layout, slots)

        super().__init__(
            spec,
            [
                make_message(comm.rank, memory, layout, view.shape)
                for layout, view in zip(layouts, spec.outgoing, strict=True)
            ],
            [
                make_message(source, source_memory, offers[source].layouts[comm.rank], shape)
                for source, source_memory, shape in zip(
                    spec.sources, self._opened.memory, spec.shapes, strict=True
                )
            ],
        )

    def start(self) -> None:
        self._exchange += 1
        exchange = self._exchange
        slot = self._exchange % SLOTS
        for message in self._outgoing:
            message.wait_taken(exchange - SLOTS)
        self._window.sync()
        self._streams.fork_copy_stream()
        with self._streams.use_copy_stream():
            for message, view, read in zip(
                self._outgoing, self._views, self._opened.read, strict=True
            ):
                read.wait()  # the flag only means that the reader's copy was launched
                message.slots[slot].copy_(view)
            # Record before the flags are set: readers wait for the latest record.
            self._ipc.packed.record()
        self._window.sync()
        for message in self._outgoing:
            message.mark_ready(exchange)

    def wait(self) -> None:
        for message in self._incoming:
            message.wait_ready(self._exchange)
        self._window.sync()
        for packed in self._opened.packed:
            packed.wait()
        self._streams.join_copy_stream()

    def release(self) -> None:
        # Record before the flags are set: senders wait for the latest record.
        self._ipc.read.record()
        self._window.sync()
        for message in self._incoming:
            message.mark_taken(self._exchange)

    def poison(self) -> None:
        """Fill the own outgoing slots; a barrier must precede the next `start`."""
        for message, read in zip(self._outgoing, self._opened.read, strict=True):
            read.wait()
            for slot in message.slots:
                slot.fill_(float("nan"))

    def free(self) -> None:
        # Wait first, because torch unmaps memory before it waits. If an exception skips `free`,
        # memory may stay mapped until exit.
        synchronize_stream(self._spec.device)
        own_slots = self._outgoing
        self._opened = _OpenedMemory([], [], [])
        self._drop_views()
        self._comm.Barrier()
        del own_slots  # after the barrier no rank has this memory open
        self._window.free()


def _allocate_marked(spec: TransportSpec, nbytes: int, ipc: DeviceIpc) -> torch.Tensor:
    """Return memory for slots, filled with a value that identifies the rank."""
    memory = torch.empty(max(nbytes, _ALIGNMENT), dtype=torch.uint8, device=spec.device)
    memory.fill_(_fill_value(spec.comm.rank))
    # Readers wait for the latest record only, so it must cover pieces packed on the copy stream.
    get_streams(spec.device).join_copy_stream()
    ipc.packed.record()
    return memory


def _make_offer(
    spec: TransportSpec, memory: torch.Tensor, layouts: Sequence[SlotLayout], ipc: DeviceIpc
) -> _Offer:
    packed, read = ipc.event_handles()
    return _Offer(
        packed,
        read,
        {target: ipc.share(memory) for target in spec.targets},
        dict(zip(spec.targets, layouts, strict=True)),
    )


def _open_offers(spec: TransportSpec, offers: Sequence[_Offer], ipc: DeviceIpc) -> _OpenedMemory:
    """Open the offers of other ranks, and check the values in their memory.

    Raises:
        RuntimeError: Memory or an event cannot be opened, or the memory belongs to another rank.
    """
    opened = _OpenedMemory(
        [ipc.open_memory(offers[source].memory[spec.comm.rank]) for source in spec.sources],
        [ipc.open_event(offers[source].packed) for source in spec.sources],
        [ipc.open_event(offers[target].read) for target in spec.targets],
    )
    for source, memory, packed in zip(spec.sources, opened.memory, opened.packed, strict=True):
        packed.wait()
        if not bool((memory == _fill_value(source)).all()):
            raise RuntimeError(f"reads other bytes than rank {source} has in its GPU's memory")
    return opened


def _fill_value(rank: int) -> int:
    return 1 + rank % _FILL_VALUES


def _refusal_error(rank: int, reason: str) -> TransportError:
    return TransportError(
        f"transport cuda-ipc: rank {rank} cannot share memory of GPUs with others here ({reason}); "
        "use auto"
    )


def _view_slot(
    memory: torch.Tensor, start: int, shape: Sequence[int], spec: TransportSpec
) -> torch.Tensor:
    flat = memory[start : start + prod(shape) * spec.dtype.itemsize].view(spec.dtype)
    return view_as_piece(flat, shape, channels_last=spec.channels_last)
