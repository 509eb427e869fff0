"""The transport ``cuda-ipc``: receivers read pieces from memory of the sender's GPU."""

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

_UNIT = 256
"""Bytes at whose multiples slots start, as blocks of a GPU's allocator do."""
_VALUES = 255
"""Values that memory is filled with at first, by ranks in turn: 1 to 255."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """What a rank offers to others.

    Attributes:
        packed: The handle of its event for what it has packed.
        read: The handle of its event for what it has read.
        memory: A handle of the memory of its slots, for each rank that it sends to.
        places: The place of the message to each of these.
    """

    packed: bytes
    read: bytes
    memory: dict[int, Handle]
    places: dict[int, SlotLayout]


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a rank has opened of others.

    Attributes:
        memory: The memory of each source.
        packed: The event of each source for what it has packed.
        read: The event of each target for what it has read.
    """

    memory: list[torch.Tensor]
    packed: list[OpenedEvent]
    read: list[OpenedEvent]


class CudaIpcTransport(SlotTransport):
    """A transport within a host that needs neither MPI, but for set-up, nor the host's memory.

    Pieces are packed on the device's copy stream, so that the GPU goes on with the work of the
    current stream. No rank waits for a GPU: flags tell that work has been asked for, and events
    let the streams of other ranks wait for it. The promises of `wait`, `unpack` and `release` hold
    for all later work of the current stream.

    Raises:
        TransportError: The ranks are not all on one host, or one cannot read the memory of
            another's GPU; raised on all ranks.
    """

    def __init__(self, wiring: TransportSpec) -> None:
        comm = self._comm = wiring.comm
        if not is_on_one_host(comm):
            raise TransportError("transport cuda-ipc: the ranks are not all on one host; use auto")
        ipc = create_on_all_ranks(comm, lambda: get_device_ipc(wiring.device), _refused)
        self._ipc = ipc
        self._streams = get_streams(wiring.device)
        places, total = lay_out_slots(wiring, 0, _UNIT)
        memory = create_on_all_ranks(comm, lambda: _filled(wiring, total, ipc), _refused)
        offer = create_on_all_ranks(comm, lambda: _offer(wiring, memory, places, ipc), _refused)
        offers: list[_Offer] = comm.allgather(offer)
        self._opened = create_on_all_ranks(comm, lambda: _opened(wiring, offers, ipc), _refused)
        self._window = SegmentWindow(comm, flag_bytes(wiring))

        def message(
            sender: int, of_sender: torch.Tensor, place: SlotLayout, shape: Sequence[int]
        ) -> SlotMessage:
            starts = (place.offset + slot * place.nbytes for slot in range(SLOTS))
            slots = [_slot(of_sender, start, shape, wiring) for start in starts]
            return SlotMessage(self._window.get_segment(sender), place, slots)

        super().__init__(
            wiring,
            [
                message(comm.rank, memory, place, view.shape)
                for place, view in zip(places, wiring.outgoing, strict=True)
            ],
            [
                message(source, of_source, offers[source].places[comm.rank], shape)
                for source, of_source, shape in zip(
                    wiring.sources, self._opened.memory, wiring.shapes, strict=True
                )
            ],
        )

    def start(self) -> None:
        self._exchange += 1
        exchange = self._exchange
        slot = self._exchange % SLOTS
        for message in self._out:
            message.wait_taken(exchange - SLOTS)
        self._window.sync()
        self._streams.fork_copy_stream()
        with self._streams.use_copy_stream():
            for message, view, read in zip(self._out, self._views, self._opened.read, strict=True):
                read.wait()
                message.slots[slot].copy_(view)
            self._ipc.packed.record()
        self._window.sync()
        for message in self._out:
            message.mark_ready(exchange)

    def wait(self) -> None:
        for message in self._in:
            message.wait_ready(self._exchange)
        self._window.sync()
        for packed in self._opened.packed:
            packed.wait()
        self._streams.join_copy_stream()

    def release(self) -> None:
        self._ipc.read.record()
        self._window.sync()
        for message in self._in:
            message.mark_taken(self._exchange)

    def poison(self) -> None:
        """Fill the own outgoing slots; the ranks must meet before the next `start`."""
        for message, read in zip(self._out, self._opened.read, strict=True):
            read.wait()
            for slot in message.slots:
                slot.fill_(float("nan"))

    def free(self) -> None:
        # Wait first, because torch unmaps memory before it waits, and if an exception skips `free`,
        # memory may stay mapped until exit.
        synchronize_stream(self._wiring.device)
        own = self._out
        self._opened = _Opened([], [], [])
        self._forget()
        self._comm.Barrier()
        del own  # nobody has its memory open any more
        self._window.free()


def _filled(wiring: TransportSpec, total: int, ipc: DeviceIpc) -> torch.Tensor:
    """Return memory for slots, filled so that a look at it tells whose it is."""
    memory = torch.empty(max(total, _UNIT), dtype=torch.uint8, device=wiring.device)
    memory.fill_(_value(wiring.comm.rank))
    # Readers wait for the latest record only: it must also cover pieces that the copy stream packs.
    get_streams(wiring.device).join_copy_stream()
    ipc.packed.record()
    return memory


def _offer(
    wiring: TransportSpec, memory: torch.Tensor, places: Sequence[SlotLayout], ipc: DeviceIpc
) -> _Offer:
    packed, read = ipc.event_handles()
    return _Offer(
        packed,
        read,
        {target: ipc.share(memory) for target in wiring.targets},
        dict(zip(wiring.targets, places, strict=True)),
    )


def _opened(wiring: TransportSpec, offers: Sequence[_Offer], ipc: DeviceIpc) -> _Opened:
    """Open what others offer, and look at their memory.

    Raises:
        RuntimeError: Memory or an event cannot be opened, or the memory is not that of its rank.
    """
    opened = _Opened(
        [ipc.open_memory(offers[source].memory[wiring.comm.rank]) for source in wiring.sources],
        [ipc.open_event(offers[source].packed) for source in wiring.sources],
        [ipc.open_event(offers[target].read) for target in wiring.targets],
    )
    for source, memory, packed in zip(wiring.sources, opened.memory, opened.packed, strict=True):
        packed.wait()
        if not bool((memory == _value(source)).all()):
            raise RuntimeError(f"reads other bytes than rank {source} has in its GPU's memory")
    return opened


def _value(rank: int) -> int:
    return 1 + rank % _VALUES


def _refused(rank: int, why: str) -> TransportError:
    return TransportError(
        f"transport cuda-ipc: rank {rank} cannot share memory of GPUs with others here ({why}); "
        "use auto"
    )


def _slot(
    memory: torch.Tensor, start: int, shape: Sequence[int], wiring: TransportSpec
) -> torch.Tensor:
    """Return a piece's tensor over a GPU's memory."""
    flat = memory[start : start + prod(shape) * wiring.dtype.itemsize].view(wiring.dtype)
    return view_as_piece(flat, shape, channels_last=wiring.channels_last)
