"""Point-to-point messages between ranks: over MPI, or over torch.distributed by gloo or NCCL.

A message is known by its two ranks, its tag, and its turn among those of that tag between them: of
one tag a rank starts to send, and to receive, in the order that the other end knows. NCCL has no
tags, so that each has a group of its own, and in it a rank either sends or receives: then nothing
that waits for another rank stands in the way of what that rank waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

Message = tuple[torch.Tensor, int]
"""A dense vector of bytes, and the rank that it goes to or comes from."""


class Pending(Protocol):
    """Something under way."""

    def wait(self) -> object:
        """Wait for it: the host, or on a GPU the current stream.

        Raises:
            RuntimeError: It takes longer than torch.distributed waits, or the other rank is gone.
        """


class P2P(Protocol):
    """Messages between the ranks of a communicator."""

    @property
    def on_device(self) -> bool:
        """Whether messages lie in memory of the device; else in that of the host."""

    def send(self, messages: Sequence[Message], tag: int) -> Sequence[Pending]:
        """Start to send to some ranks. The memory must not change before all has been waited for.

        Args:
            messages: At most one a rank.
            tag: Of these messages; the ranks that they go to receive with the same.
        """

    def receive(self, messages: Sequence[Message], tag: int) -> Sequence[Pending]:
        """Start to receive from some ranks. The memory is theirs until all has been waited for."""

    def free(self) -> None:
        """Give everything back. All ranks must call it, with nothing under way."""
