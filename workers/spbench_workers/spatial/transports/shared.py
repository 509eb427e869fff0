"""The transport ``shm``: an MPI shared window within a host, from which receivers read pieces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI

from spbench_workers.comm import on_one_host
from spbench_workers.spatial.transports import TransportError, Wiring

_LINE = 64
"""Bytes of a cache line: no two flags share one, and no piece shares one with a flag."""
_FLAG = _LINE // 8
"""Items of a memoryview of 64-bit numbers from one flag to the next."""
_SLOTS = 2
"""A sender may pack the next piece while the last one is still read."""
_LOOKS = 200
"""Looks at a flag before the core is offered to others."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a message in its sender's segment.

    ``ready`` counts the exchanges whose piece has been packed, ``taken`` those that were read.
    """

    ready: int
    taken: int
    offset: int
    nbytes: int


class _Message:
    """Flags and slots of one message, as sender and receiver see them."""

    def __init__(
        self, segment: memoryview, place: _Place, shape: Sequence[int], wiring: Wiring
    ) -> None:
        self._flags = segment[: segment.nbytes // 8 * 8].cast("q")
        self._place = place
        bytes_of_slot = _aligned(place.nbytes)
        starts = (place.offset + slot * bytes_of_slot for slot in range(_SLOTS))
        self.slots = [_tensor(segment, start, shape, wiring) for start in starts]

    def await_ready(self, exchange: int) -> None:
        """Return when the piece of this exchange has been packed."""
        self._await(self._place.ready, exchange)

    def await_taken(self, exchange: int) -> None:
        """Return when the piece of this exchange has been read."""
        self._await(self._place.taken, exchange)

    def say_ready(self, exchange: int) -> None:
        """Tell the reader that the piece of this exchange has been packed."""
        self._flags[self._place.ready] = exchange

    def say_taken(self, exchange: int) -> None:
        """Tell the sender that the piece of this exchange has been read."""
        self._flags[self._place.taken] = exchange

    def _await(self, flag: int, exchange: int) -> None:
        flags = self._flags
        for _ in range(_LOOKS):
            if flags[flag] >= exchange:
                return
        while flags[flag] < exchange:
            os.sched_yield()


class SharedTransport:
    """A transport through memory that all ranks of a host share; MPI is needed only for set-up.

    Raises:
        TransportError: The ranks are not all on one host.
    """

    memory_path = None

    def __init__(self, wiring: Wiring) -> None:
        if not on_one_host(wiring.comm):
            raise TransportError("transport shm: the ranks are not all on one host; use auto")
        self._wiring = wiring.without_views()
        places, total = _lay_out(wiring)
        self._window = MPI.Win.Allocate_shared(total, 1, comm=wiring.comm)
        self._window.Lock_all()
        self._segment = _segment(self._window, wiring.comm.rank)
        self._segment[:] = bytes(total)
        everyones = wiring.comm.allgather(dict(zip(wiring.targets, places, strict=True)))
        self._out = [
            _Message(self._segment, place, view.shape, wiring)
            for place, view in zip(places, wiring.outgoing, strict=True)
        ]
        rank = wiring.comm.rank
        self._in = [
            _Message(_segment(self._window, source), everyones[source][rank], shape, wiring)
            for source, shape in zip(wiring.sources, wiring.shapes, strict=True)
        ]
        self._exchange = 0
        self._landed = [[message.slots[slot] for message in self._in] for slot in range(_SLOTS)]
        self.bind(wiring.outgoing)

    @property
    def received(self) -> Sequence[torch.Tensor]:
        return self._landed[self._exchange % _SLOTS]

    def bind(self, outgoing: Sequence[torch.Tensor]) -> None:
        self._views = list(outgoing)

    def unbind(self) -> None:
        self._views = []

    def start(self) -> None:
        self._exchange += 1
        exchange, slot = self._exchange, self._exchange % _SLOTS
        for message, view in zip(self._out, self._views, strict=True):
            message.await_taken(exchange - _SLOTS)
            message.slots[slot].copy_(view)
            self._window.Sync()
            message.say_ready(exchange)

    def progress(self) -> None:
        """Do nothing: a piece is there as soon as its sender has packed it."""

    def wait(self) -> None:
        for message in self._in:
            message.await_ready(self._exchange)
        self._window.Sync()

    def unpack(self) -> None:
        if self._wiring.into is not None:
            for target, piece in zip(self._wiring.into, self.received, strict=True):
                target.copy_(piece)

    def release(self) -> None:
        self._window.Sync()
        for message in self._in:
            message.say_taken(self._exchange)

    def poison(self) -> None:
        """Fill the own outgoing slots; the ranks must meet before the next `start`."""
        for message in self._out:
            for slot in message.slots:
                slot.fill_(float("nan"))

    def free(self) -> None:
        self._out, self._in, self._landed = [], [], [[], []]
        self._window.Unlock_all()
        self._window.Free()


def _lay_out(wiring: Wiring) -> tuple[list[_Place], int]:
    """Return the messages' places in this rank's segment, and its size in bytes."""
    offset = 2 * len(wiring.outgoing) * _LINE
    places = []
    for index, view in enumerate(wiring.outgoing):
        nbytes = view.numel() * view.element_size()
        places.append(_Place(2 * index * _FLAG, (2 * index + 1) * _FLAG, offset, nbytes))
        offset += _SLOTS * _aligned(nbytes)
    return places, max(offset, _LINE)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _LINE) * _LINE


def _segment(window: MPI.Win, rank: int) -> memoryview:
    memory, _ = window.Shared_query(rank)
    return memoryview(memory)  # type: ignore[arg-type]


def _tensor(segment: memoryview, start: int, shape: Sequence[int], wiring: Wiring) -> torch.Tensor:
    """Return a piece's tensor over shared memory."""
    batch, channels, rows, cols = shape
    count = batch * channels * rows * cols
    flat = torch.frombuffer(segment, dtype=wiring.dtype, offset=start, count=count)
    if wiring.channels_last:
        return flat.view(batch, rows, cols, channels).permute(0, 3, 1, 2)
    return flat.view(batch, channels, rows, cols)
