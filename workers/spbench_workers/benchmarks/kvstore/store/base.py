"""The interface of every store: its pushes of gradients, and its traffic.

A push may be compressed. The error of compression stays with the sender as the residual (error
feedback), and is added to the next gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.compression import Code, Compression

Message = npt.NDArray[Any]
"""Sent or received memory: float32, or the bytes of a compressed gradient."""


class Push:
    """The push of a gradient, or of a shard of it, uncompressed.

    Attributes:
        key: The key of the gradient.
        first: Its first element within the key.
        gradient: The elements.
        message: The memory that is sent.
    """

    def __init__(self, key: int, first: int, gradient: Float32Array) -> None:
        self.key = key
        self.first = first
        self.gradient = gradient
        self.message: Message = gradient

    def prepare(self) -> None:
        """Prepare the message, which is the gradient itself."""


class CompressedPush(Push):
    """The push of a compressed gradient.

    Attributes:
        residual: The sum of all gradients so far minus the sent values.
        code: The compressed gradient, the message.
    """

    def __init__(
        self, key: int, first: int, gradient: Float32Array, compression: Compression
    ) -> None:
        super().__init__(key, first, gradient)
        self._compression = compression
        self.residual: Float32Array = np.zeros_like(gradient)
        self.code: Code = np.zeros(compression.nbytes(len(gradient)), np.uint8)
        self.message = self.code

    def prepare(self) -> None:
        """Compress the gradient with the residual, and update the residual."""
        self._compression.encode(self.gradient, self.residual, self.code)


def make_push(
    key: int, first: int, gradient: Float32Array, compression: Compression | None
) -> Push:
    """Return the push of a gradient, compressed unless ``compression`` is None."""
    if compression is None:
        return Push(key, first, gradient)
    return CompressedPush(key, first, gradient, compression)


def allocate_receive_buffer(elements: int, compression: Compression | None) -> Message:
    """Return memory to receive one push of ``elements`` elements."""
    if compression is None:
        return np.zeros(elements, np.float32)
    return np.zeros(compression.nbytes(elements), np.uint8)


def make_sum(
    messages: Sequence[Message], into: Float32Array, compression: Compression | None
) -> Callable[[], None]:
    """Return a function that sums messages in order, in float32, without allocation.

    Args:
        messages: One message per sender, at least one.
        into: Memory of the sum. If it is the only message, the function does nothing.
        compression: The compression of the messages; None for float32.
    """
    if compression is not None:
        return partial(_sum_codes, messages, into, compression)
    if len(messages) > 1:
        return partial(_sum, messages, into)
    return _do_nothing if messages[0] is into else partial(np.copyto, into, messages[0])


def _sum(messages: Sequence[Message], into: Float32Array) -> None:
    np.add(messages[0], messages[1], out=into)
    for message in messages[2:]:
        np.add(into, message, out=into)


def _sum_codes(messages: Sequence[Message], into: Float32Array, compression: Compression) -> None:
    compression.decode(messages[0], into)
    for message in messages[1:]:
        compression.decode_add(message, into)


def _do_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class SentTraffic:
    """The bytes and messages that one rank sends in a round.

    Attributes:
        bytes: Bytes that it sends.
        messages: Messages that it sends.
    """

    bytes: int
    messages: int


class Store(Protocol):
    """One rank's part in a store over fixed memory; all ranks of the job run it."""

    @property
    def traffic(self) -> SentTraffic:
        """The traffic of this rank in a round, as passed to MPI."""

    @property
    def pushes(self) -> Sequence[Push]:
        """The pushes of this rank that may be compressed; empty on a server."""

    def round(self) -> None:
        """Push and pull all keys; on a server answer one round of all workers."""

    def settle(self) -> None:
        """Pull the values after all rounds so far, outside the timed rounds.

        In a synchronous store this is a no-op, because each round pulls them.
        """

    def free(self) -> None:
        """Free the requests and windows of MPI. All ranks must call it."""
