"""Message buffers of a ping-pong in the memory of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch

from spbench_core.catalog.typed_params import require_value
from spbench_parallel.device.streams import synchronize_stream, time_on_device
from spbench_parallel.errors import CannotRunError, catch_out_of_memory
from spbench_parallel.spatial.transports.staged import query_device_pointers
from spbench_workers.benchmarks.link.entry import PingpongParams
from spbench_workers.benchmarks.link.messages import invert_bytes, time_copies
from spbench_workers.context import Context
from spbench_workers.device_choice import choose_device
from spbench_workers.pingpong.device_pair import (
    DevicePair,
    MessagePath,
    check_cuda_ipc,
    open_pair,
    open_path,
)
from spbench_workers.pingpong.pair import Peer
from spbench_workers.timing import compute_calls_per_sample, repeat_calls


class DeviceMessageBuffers:
    """Message buffers in a device's memory.

    Args:
        device: This rank's device.
        path: The path of the messages.
        largest: Bytes of the largest message.
    """

    def __init__(self, device: torch.device, path: MessagePath, largest: int) -> None:
        self._device = device
        self._path = path
        with catch_out_of_memory(2 * largest):
            self._outgoing, self._incoming = (
                torch.zeros(largest, dtype=torch.uint8, device=device) for _ in range(2)
            )
        self.memory = f"the memory of {device}"

    def open_pair(self, peer: Peer, count: int) -> DevicePair:
        outgoing = self._outgoing[:count]
        incoming = self._incoming[:count]
        return open_pair(peer, outgoing, incoming, self._path)

    def write_outgoing(self, data: bytes) -> None:
        self._outgoing[: len(data)].copy_(_bytes(data))

    def poison_incoming(self, expected: bytes) -> None:
        self._incoming[: len(expected)].copy_(_bytes(invert_bytes(expected)))

    def forward(self, count: int) -> None:
        self._outgoing[:count].copy_(self._incoming[:count])

    def corrupt_incoming(self, index: int) -> None:
        self._incoming[index : index + 1].bitwise_not_()

    def read_incoming(self, count: int) -> bytes:
        return self._incoming[:count].cpu().numpy().tobytes()

    def measure_copy(self, count: int) -> float:
        outgoing = self._outgoing[:count]
        incoming = self._incoming[:count]

        def copy() -> None:
            incoming.copy_(outgoing)

        time_on_device(self._device, copy)
        repeats = compute_calls_per_sample(time_on_device(self._device, copy))
        copies = repeat_calls(copy, repeats)

        def copy_and_wait() -> None:
            copies()
            synchronize_stream(self._device)

        return time_copies(copy_and_wait, repeats)

    def free(self) -> None:
        """Do nothing: torch frees the memory."""


def _bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


@contextmanager
def open_device_messages(context: Context) -> Iterator[DeviceMessageBuffers]:
    """Open the message buffers of a case on this rank's GPU.

    All ranks must enter and leave the context together.

    Raises:
        CannotRunError: The device is missing, or cannot be reached over the path.
    """
    comm = context.world.comm
    device = choose_device(context)
    path = choose_path(context)
    with open_path(comm, device, path):
        if path == "cuda-ipc":
            check_cuda_ipc(comm, device)
        yield DeviceMessageBuffers(device, path, context.read_params(PingpongParams).sizes[-1])


def choose_path(context: Context) -> MessagePath:
    """Choose the path of the messages, and report it. All ranks must call it.

    Raises:
        CannotRunError: The case requests ``pointers``, and the MPI is not known to accept device
            memory.
    """
    requested = require_value(context.read_params(PingpongParams).path)
    takes, evidence = query_device_pointers(context.world.comm)
    if requested == "pointers" and not takes:
        raise CannotRunError(f"path pointers: {evidence}; take path pinned or auto")
    path: MessagePath
    if requested != "auto":
        path = cast(MessagePath, requested)
        reason = "asked for"
    else:
        path = "pointers" if takes else "pinned"
        reason = evidence
    if context.world.rank == 0:
        context.choice("path", path, reason)
    return path
