"""Pinned host memory through which GPU data is staged for MPI."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import cycle
from math import prod

import torch

from spbench_parallel.device.streams import get_streams, is_gpu

DOWNLOAD_BUFFERS = 2
"""Buffers for copies from the GPU, used in turn."""
UPLOAD_BUFFERS = 16
"""Buffers for copies to the GPU, used in turn: so the host waits only if the next one is in use."""


class StagingBuffers:
    """Reusable pinned buffers for copies from and to a GPU.

    The host continues while the GPU copies.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._streams = get_streams(device)
        self._download_buffers = [_PinnedBuffer(device) for _ in range(DOWNLOAD_BUFFERS)]
        self._upload_buffers = [_PinnedBuffer(device) for _ in range(UPLOAD_BUFFERS)]
        self._next_download = cycle(self._download_buffers)
        self._next_upload = cycle(self._upload_buffers)

    def download(self, values: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return GPU values on the host, after waiting for the copy.

        The result may be written to. Its memory is reused by the second next call of `download` or
        `reserve`.

        Args:
            values: A tensor on the GPU.
            dtype: The number format of the result; None keeps that of the values.
        """
        source = values.detach().to(dtype or values.dtype)
        staged = self.reserve(source.shape, source.dtype)
        staged.copy_(source, non_blocking=True)
        self._streams.synchronize()
        return staged

    def reserve(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return uninitialised memory with the lifetime of a result of `download`."""
        _grow_buffers(self._download_buffers, shape, dtype)
        return next(self._next_download).memory(shape, dtype)

    def copy_to_gpu(self, values: torch.Tensor, into: torch.Tensor) -> None:
        """Copy host values to a tensor of the GPU, in the tensor's number format.

        Later work of the current stream sees them. The values may change right after the call. The
        exception is memory that `download` or `reserve` returned, which is copied directly.
        """
        buffer = next(
            (buffer for buffer in self._download_buffers if buffer.holds(values, into.dtype)), None
        )
        if buffer is None:
            _grow_buffers(self._upload_buffers, values.shape, into.dtype)
            buffer = next(self._next_upload)
            staged = buffer.memory(values.shape, into.dtype)
            staged.copy_(values)
            values = staged
        into.copy_(values, non_blocking=True)
        buffer.mark_copied()

    def upload(self, values: torch.Tensor) -> torch.Tensor:
        """Return host values on the GPU; see `copy_to_gpu`."""
        target = torch.empty(values.shape, dtype=values.dtype, device=self._device)
        self.copy_to_gpu(values, target)
        return target


MIN_BUFFER_BYTES = 1 << 16
"""The smallest size of a buffer, in bytes."""


class _PinnedBuffer:
    """A pinned buffer, with the event after which it may be overwritten."""

    def __init__(self, device: torch.device) -> None:
        self._pins = device.type == "cuda"
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._copied = get_streams(device).event()

    def memory(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return the buffer in a shape, after earlier copies from it have ended."""
        self._copied.synchronize()
        used_bytes = prod(shape) * dtype.itemsize
        return self._memory[:used_bytes].view(dtype).view(tuple(shape))

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self._memory)

    def grow(self, size: int) -> None:
        """Replace the memory by ``size`` bytes; copies in progress keep the old memory."""
        self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=self._pins)

    def holds(self, values: torch.Tensor, dtype: torch.dtype) -> bool:
        """Return whether the values are in this buffer, in that number format."""
        return values.dtype == dtype and values.data_ptr() == self._memory.data_ptr() != 0

    def mark_copied(self) -> None:
        """Record that a copy from the buffer was started."""
        self._copied.record()


def _grow_buffers(
    buffers: Sequence[_PinnedBuffer], shape: Sequence[int], dtype: torch.dtype
) -> None:
    """Grow all buffers together; otherwise the others would grow during later steps."""
    needed_bytes = max(MIN_BUFFER_BYTES, prod(shape) * dtype.itemsize)
    if needed_bytes > buffers[0].size:
        for buffer in buffers:
            buffer.grow(1 << (needed_bytes - 1).bit_length())


@cache
def get_staging_buffers(device: torch.device) -> StagingBuffers:
    """Return the pinned buffers of a GPU; each call returns the same object."""
    return StagingBuffers(device)


def copy_to_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return host values on a device; the host does not wait for a copy to a GPU."""
    return get_staging_buffers(device).upload(values) if is_gpu(device) else values
