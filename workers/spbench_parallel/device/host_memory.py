"""Pinned memory of the host, through which data of a GPU is staged for MPI."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import cycle
from math import prod

import torch

from spbench_parallel.device.streams import get_streams, is_gpu

FETCH_BUFFERS = 2
SEND_BUFFERS = 16
"""Buffers from the GPU and to it, used in turn: so many copies may be under way before the host
waits for the first of them."""


class HostMemory:
    """Pinned buffers that are used again: a GPU copies from and to them while the host goes on.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._streams = get_streams(device)
        self._fetched = [_Buffer(device) for _ in range(FETCH_BUFFERS)]
        self._sent = [_Buffer(device) for _ in range(SEND_BUFFERS)]
        self._next_fetched = cycle(self._fetched)
        self._next_sent = cycle(self._sent)

    def fetch(self, values: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return values of the GPU on the host, after waiting for the copy.

        The result may be written to; its memory is used again at the next call but one of this and
        of `room`.

        Args:
            values: A tensor on the GPU.
            dtype: The number format of the result; None keeps that of the values.
        """
        own = values.detach().to(dtype or values.dtype)
        there = self.reserve(own.shape, own.dtype)
        there.copy_(own, non_blocking=True)
        self._streams.synchronize()
        return there

    def reserve(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return memory as `fetch` does, with undefined values."""
        _make_room(self._fetched, shape, dtype)
        return next(self._next_fetched).memory(shape, dtype)

    def put(self, values: torch.Tensor, into: torch.Tensor) -> None:
        """Copy values of the host to a tensor of the GPU, in its number format.

        The values may change at once after the call, except for the memory that `fetch` or `room`
        returned, which is copied directly; later work of the current stream finds them.
        """
        buffer = next((one for one in self._fetched if one.holds(values, into.dtype)), None)
        if buffer is None:
            _make_room(self._sent, values.shape, into.dtype)
            buffer = next(self._next_sent)
            there = buffer.memory(values.shape, into.dtype)
            there.copy_(values)
            values = there
        into.copy_(values, non_blocking=True)
        buffer.leave()

    def send(self, values: torch.Tensor) -> torch.Tensor:
        """Return values of the host on the GPU, as `put` has them."""
        made = torch.empty(values.shape, dtype=values.dtype, device=self._device)
        self.put(values, made)
        return made


MIN_BUFFER_BYTES = 1 << 16
"""The least bytes of a buffer."""


class _Buffer:
    """A pinned buffer, and the event after which it may be written again."""

    def __init__(self, device: torch.device) -> None:
        self._pins = device.type == "cuda"
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._left = get_streams(device).event()

    def memory(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return it in a shape, once earlier copies from it have ended."""
        self._left.synchronize()
        size = prod(shape) * dtype.itemsize
        return self._bytes[:size].view(dtype).view(tuple(shape))

    @property
    def size(self) -> int:
        """The bytes of the buffer."""
        return len(self._bytes)

    def grow(self, size: int) -> None:
        """Replace the memory by one of so many bytes; copies under way keep the old one."""
        self._bytes = torch.empty(size, dtype=torch.uint8, pin_memory=self._pins)

    def holds(self, values: torch.Tensor, dtype: torch.dtype) -> bool:
        """Whether the values are in this buffer, in that number format."""
        return values.dtype == dtype and values.data_ptr() == self._bytes.data_ptr() != 0

    def leave(self) -> None:
        """Record that a copy from it was started."""
        self._left.record()


def _make_room(buffers: Sequence[_Buffer], shape: Sequence[int], dtype: torch.dtype) -> None:
    """Grow all buffers at once: one by one they would grow in the midst of later steps."""
    size = max(MIN_BUFFER_BYTES, prod(shape) * dtype.itemsize)
    if size > buffers[0].size:
        for buffer in buffers:
            buffer.grow(1 << (size - 1).bit_length())


@cache
def get_host_memory(device: torch.device) -> HostMemory:
    """Return the pinned buffers of a GPU, the same at each call."""
    return HostMemory(device)


def copy_to_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return values of the host on a device; the host does not wait for the copy to a GPU."""
    return get_host_memory(device).send(values) if is_gpu(device) else values
