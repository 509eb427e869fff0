"""A stream of a transport's own, where the device has streams; on the host, nothing to wait for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch


class Mark(Protocol):
    """A point in the work of a stream, set by `record`; one that was never set has passed."""

    def record(self) -> None:
        """Set it after all that the stream in use was asked for until now."""

    def query(self) -> bool:
        """Whether that has been done."""

    def synchronize(self) -> None:
        """Return when it has been done."""


class Lane:
    """Work in an order of its own, beside that of the current stream.

    Args:
        device: A GPU, or the host, which does at once what it is asked for.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)

    def active(self) -> AbstractContextManager[object]:
        """Put on the lane what is asked of the device within the block."""
        if self._stream is None:
            return nullcontext()
        return torch.cuda.stream(self._stream)

    def follow(self) -> None:
        """Let what comes on the lane wait for all that the current stream was asked for."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def lead(self) -> None:
        """Let what comes on the current stream wait for all that the lane was asked for."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def mark(self) -> Mark:
        """Return a mark, to be set within `active`."""
        if self._stream is None:
            return _Passed()
        return torch.cuda.Event()


class _Passed:
    """A mark in the work of the host."""

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass
