"""Memory of the host by whose way numbers of a GPU go to MPI and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import cycle
from math import prod

import torch

from spbench_workers.device.streams import is_gpu, streams_of

FETCHED, SENT = 2, 16
"""Pieces of memory, used in turn, of what comes from the GPU and of what goes to it: so many copies
there may be under way before the host waits for the first of them."""


class HostMemory:
    """Memory that is kept, and pinned: a GPU copies from and to it while the host goes on.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._streams = device, streams_of(device)
        self._fetched, self._sent = ([_Piece(device) for _ in range(n)] for n in (FETCHED, SENT))
        self._next_fetched, self._next_sent = cycle(self._fetched), cycle(self._sent)

    def fetch(self, values: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return values of the GPU on the host, where they are when this returns.

        What is returned may be written to; its memory is used again at the next call but one of
        this and of `room`.

        Args:
            values: On the GPU.
            dtype: In which number format; their own where it is None.
        """
        own = values.detach().to(dtype or values.dtype)
        there = self.room(own.shape, own.dtype)
        there.copy_(own, non_blocking=True)
        self._streams.finish()
        return there

    def room(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return memory as `fetch` does, with nothing in it."""
        _make_room(self._fetched, shape, dtype)
        return next(self._next_fetched).memory(shape, dtype)

    def put(self, values: torch.Tensor, into: torch.Tensor) -> None:
        """Copy values of the host to a tensor of the GPU, in its number format.

        The values may change at once; the tensor has them for what the current stream is asked
        for from now on. What `fetch` or `room` returned goes as it is, and must not change.
        """
        piece = next((one for one in self._fetched if one.holds(values, into.dtype)), None)
        if piece is None:
            _make_room(self._sent, values.shape, into.dtype)
            piece = next(self._next_sent)
            there = piece.memory(values.shape, into.dtype)
            there.copy_(values)
            values = there
        into.copy_(values, non_blocking=True)
        piece.leave()

    def send(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of the host on the GPU, as `put` has them."""
        made = torch.empty(values.shape, dtype=values.dtype, device=self._device)
        self.put(values, made)
        return made


LEAST = 1 << 16
"""Bytes of a piece, at the least."""


class _Piece:
    """A piece of memory, and when it may be written again."""

    def __init__(self, device: torch.device) -> None:
        self._pins = device.type == "cuda"
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._left = streams_of(device).event()

    def memory(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return it in a shape; what was copied from it before has arrived."""
        self._left.synchronize()
        size = prod(shape) * dtype.itemsize
        return self._bytes[:size].view(dtype).view(tuple(shape))

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self._bytes)

    def grow(self, size: int) -> None:
        """Take other memory, of so many bytes; copies under way keep what they copy from."""
        self._bytes = torch.empty(size, dtype=torch.uint8, pin_memory=self._pins)

    def holds(self, values: torch.Tensor, dtype: torch.dtype) -> bool:
        """Whether these are the piece's, in that number format."""
        return values.dtype == dtype and values.data_ptr() == self._bytes.data_ptr() != 0

    def leave(self) -> None:
        """Say that a copy from it was asked for."""
        self._left.record()


def _make_room(pieces: Sequence[_Piece], shape: Sequence[int], dtype: torch.dtype) -> None:
    """Let all pieces grow at once: one by one they would do so in the midst of later steps."""
    size = max(LEAST, prod(shape) * dtype.itemsize)
    if size > pieces[0].size:
        for piece in pieces:
            piece.grow(1 << (size - 1).bit_length())


@cache
def host_memory_of(device: torch.device) -> HostMemory:
    """Return a GPU's memory on the host, the same at each call."""
    return HostMemory(device)


def sent(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return values of the host on a device; the host does not wait for what a GPU does."""
    return host_memory_of(device).send(values) if is_gpu(device) else values
