"""Point-to-point messages over MPI, or over torch.distributed (gloo, NCCL).

A message is matched by its two ranks, its tag, and its order among the messages of that tag between
them. So with one tag, a rank starts to send, and to receive, in the order that the other rank
expects. NCCL has no tags. Each tag therefore has its own group, in which a rank either sends or
receives, so that no waiting receive blocks a message that another rank waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

Message = tuple[torch.Tensor, int]
"""A dense vector of bytes, and the rank that it goes to or comes from."""


class Pending(Protocol):
    """A message in flight."""

    def wait(self) -> object:
        """Wait for the message: on the host, or on the current stream of a GPU.

        Raises:
            RuntimeError: The timeout of torch.distributed has passed, or the other rank has ended.
        """


class P2P(Protocol):
    """Point-to-point messages between the ranks of a communicator."""

    @property
    def on_device(self) -> bool:
        """Whether messages are in memory of the device, otherwise in memory of the host."""

    def send(self, messages: Sequence[Message], tag: int) -> Sequence[Pending]:
        """Start to send to some ranks.

        The memory must not change before all sends are complete.

        Args:
            messages: At most one to each rank.
            tag: The tag of these messages; the other ranks receive with the same.
        """

    def receive(self, messages: Sequence[Message], tag: int) -> Sequence[Pending]:
        """Start to receive from some ranks.

        The memory must not be used before all receives are complete.
        """

    def free(self) -> None:
        """Free all groups and requests. All ranks must call it, with no message in flight."""
