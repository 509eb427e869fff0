"""Message buffers of a ping-pong, and the contents of messages."""

from __future__ import annotations

import ctypes
import random
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from time import perf_counter
from typing import Protocol

from mpi4py import MPI

from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.link.entry import PingpongParams
from spbench_workers.context import Context
from spbench_workers.pingpong.pair import Pair, Peer
from spbench_workers.timing import compute_calls_per_sample, repeat_calls, time_batch

_BLOCK = 1 << 20
_INVERTED = bytes(255 - value for value in range(256))


def random_bytes(seed: int, count: int) -> bytes:
    """Return ``count`` bytes that depend only on the seed."""
    generator = random.Random(seed)
    sizes = (min(_BLOCK, count - first) for first in range(0, count, _BLOCK))
    return b"".join(map(generator.randbytes, sizes))


def invert_bytes(expected: bytes) -> bytes:
    """Return a wrong value for every byte, which reveals bytes that never arrive."""
    return expected.translate(_INVERTED)


def compare_bytes(actual: bytes, expected: bytes) -> WorstError:
    """Compare bytes; the error is the largest difference in the first wrong block."""
    for first in range(0, len(expected), _BLOCK):
        actual_block = actual[first : first + _BLOCK]
        expected_block = expected[first : first + _BLOCK]
        if actual_block != expected_block:
            wrong_positions = [
                index
                for index, pair in enumerate(zip(actual_block, expected_block, strict=True))
                if pair[0] != pair[1]
            ]
            max_error = max(
                abs(actual_block[index] - expected_block[index]) for index in wrong_positions
            )
            position = wrong_positions[0]
            actual_byte = actual_block[position]
            expected_byte = expected_block[position]
            detail = f"byte {first + position} is {actual_byte:#04x}, not {expected_byte:#04x}"
            return WorstError.single(float(max_error), 0.0, detail)
    return WorstError()


_COPIES = 20


def time_copies(make_copies: Callable[[], object], count: int) -> float:
    """Return the seconds of one copy, the median over samples.

    Args:
        make_copies: Copies a message ``count`` times, and returns when all copies are done.
        count: Copies in a sample.
    """
    seconds = array("d", bytes(8 * _COPIES))
    time_batch(make_copies, seconds, 0, _COPIES, 1.0 / count)
    return median(seconds)


class PingPongPair(Protocol):
    """A ping-pong of one message size between this rank and a peer."""

    @property
    def peer(self) -> Peer:
        """The other rank."""

    @property
    def count(self) -> int:
        """Bytes of one message."""

    def send(self) -> None:
        """Send once."""

    def receive(self) -> None:
        """Receive once."""

    def make_round_trips(self, count: int) -> None:
        """Make ``count`` round trips; both ranks must pass the same number."""

    def free(self) -> None:
        """Free its requests."""


class MessageBuffers(Protocol):
    """Message buffers of any size up to the largest, one to send and one to receive."""

    @property
    def memory(self) -> str:
        """The text for the memory, such as ``its memory``."""

    def open_pair(self, peer: Peer, count: int) -> PingPongPair:
        """Return a ping-pong of ``count`` bytes; the peer must open it too."""

    def write_outgoing(self, data: bytes) -> None:
        """Write the message to send."""

    def poison_incoming(self, expected: bytes) -> None:
        """Make the receive buffer differ from the expected message in every byte."""

    def forward(self, count: int) -> None:
        """Copy the received message to the send buffer."""

    def corrupt_incoming(self, index: int) -> None:
        """Flip a byte of the received message."""

    def read_incoming(self, count: int) -> bytes:
        """Return the received message."""

    def measure_copy(self, count: int) -> float:
        """Return the seconds in which this rank copies ``count`` bytes within the memory."""

    def free(self) -> None:
        """Free the memory."""


class HostMessageBuffers:
    """Message buffers in the host's memory, allocated by MPI.

    Args:
        largest: Bytes of the largest message.
    """

    memory = "its memory"

    def __init__(self, largest: int) -> None:
        self._outgoing = MPI.Alloc_mem(largest)
        self._incoming = MPI.Alloc_mem(largest)
        for memory in (self._outgoing, self._incoming):
            memory[:] = bytes(largest)

    def open_pair(self, peer: Peer, count: int) -> Pair:
        return Pair(peer, self._outgoing, self._incoming, count)

    def write_outgoing(self, data: bytes) -> None:
        self._outgoing[: len(data)] = data

    def poison_incoming(self, expected: bytes) -> None:
        self._incoming[: len(expected)] = invert_bytes(expected)

    def forward(self, count: int) -> None:
        self._outgoing[:count] = self._incoming[:count]

    def corrupt_incoming(self, index: int) -> None:
        self._incoming[index] ^= 0xFF

    def read_incoming(self, count: int) -> bytes:
        return self._incoming[:count].tobytes()

    def measure_copy(self, count: int) -> float:
        copy = partial(ctypes.memmove, self._incoming.address, self._outgoing.address, count)
        start = perf_counter()
        copy()
        repeats = compute_calls_per_sample(perf_counter() - start)
        return time_copies(repeat_calls(copy, repeats), repeats)

    def free(self) -> None:
        MPI.Free_mem(self._outgoing)
        MPI.Free_mem(self._incoming)


@contextmanager
def open_messages(context: Context) -> Iterator[MessageBuffers]:
    """Open the message buffers of a case on host or GPU.

    All ranks must enter and leave the context together.

    Raises:
        CannotRunError: The device is missing, or cannot be reached over the path.
    """
    params = context.read_params(PingpongParams)
    if params.device == "cpu":
        context.device("cpu", "asked for", speaks=context.world.rank == 0)
        messages = HostMessageBuffers(params.sizes[-1])
        yield messages
        messages.free()
    else:
        # torch is slow to import, and a case on the host does not need it.
        from spbench_workers.benchmarks.link.device_messages import open_device_messages

        with open_device_messages(context) as on_device:
            yield on_device
