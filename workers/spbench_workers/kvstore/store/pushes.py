"""What is pushed: a gradient as it is, or its code, which owes what it does not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from spbench_workers.kvstore.compression import Code, Compression
from spbench_workers.kvstore.keys.arena import Array

Message = npt.NDArray[Any]
"""Memory that is sent or received: float32, or the bytes of codes."""


class Push:
    """A gradient, or a part of it, as it leaves a rank uncompressed.

    Attributes:
        key: Whose gradient it is.
        first: Its first element within the key.
        gradient: The elements.
        message: The memory that is sent.
    """

    def __init__(self, key: int, first: int, gradient: Array) -> None:
        self.key, self.first, self.gradient = key, first, gradient
        self.message: Message = gradient

    def prepare(self) -> None:
        """Make the message. It is the gradient itself."""


class CompressedPush(Push):
    """A compressed one.

    Attributes:
        residual: What all messages so far still owe.
    """

    def __init__(self, key: int, first: int, gradient: Array, compression: Compression) -> None:
        super().__init__(key, first, gradient)
        self._compression = compression
        self.residual: Array = np.zeros_like(gradient)
        self.code: Code = np.zeros(compression.nbytes(len(gradient)), np.uint8)
        self.message = self.code

    def prepare(self) -> None:
        """Make the code of the gradient and of what is owed."""
        self._compression.encode(self.gradient, self.residual, self.code)


def push_of(key: int, first: int, gradient: Array, compression: Compression | None) -> Push:
    """Return what pushes a gradient, compressed if asked."""
    if compression is None:
        return Push(key, first, gradient)
    return CompressedPush(key, first, gradient, compression)


def landing(elements: int, compression: Compression | None) -> Message:
    """Return memory for one message of so many elements, compressed if asked."""
    if compression is None:
        return np.zeros(elements, np.float32)
    return np.zeros(compression.nbytes(elements), np.uint8)


def summing(
    messages: Sequence[Message], into: Array, compression: Compression | None
) -> Callable[[], None]:
    """Return what sums messages in their order, in float32 and without allocating.

    Args:
        messages: One at least, each of one sender.
        into: Where the sum goes. If it is the only message itself, nothing is to be done.
        compression: How the messages are compressed.
    """
    if compression is not None:
        return partial(_sum_codes, messages, into, compression)
    if len(messages) > 1:
        return partial(_sum, messages, into)
    return _nothing if messages[0] is into else partial(np.copyto, into, messages[0])


def _sum(messages: Sequence[Message], into: Array) -> None:
    np.add(messages[0], messages[1], out=into)
    for message in messages[2:]:
        np.add(into, message, out=into)


def _sum_codes(messages: Sequence[Message], into: Array, compression: Compression) -> None:
    compression.decode(messages[0], into)
    for message in messages[1:]:
        compression.decode_add(message, into)


def _nothing() -> None:
    pass
