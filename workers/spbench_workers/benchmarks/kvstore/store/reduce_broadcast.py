"""Reduction of keys to merge devices, and broadcast of values (comm.h of MXNet).

Devices are the ranks of one worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.compression import Compression
from spbench_workers.benchmarks.kvstore.store.base import (
    Push,
    allocate_receive_buffer,
    make_push,
    make_sum,
)

_PUSH = 0
_VALUE = 1


@dataclass(slots=True)
class _MergedKey:
    """A key that is merged here: this device's push, the sum, and the requests."""

    own_push: Push
    reduce: Callable[[], None]
    receives: list[MPI.Prequest] = field(default_factory=list)
    broadcasts: list[MPI.Prequest] = field(default_factory=list)


@dataclass(slots=True)
class _OtherKey:
    """A key merged on another device: the push to it, and the receive of the value."""

    push: Push
    send: MPI.Prequest
    receive: MPI.Prequest


class ReduceBroadcast:
    """One device's part in reducing and broadcasting keys by persistent requests.

    A round is `begin`, `push` of each of the `other_keys`, `reduce` and `broadcast` of each of the
    `merged_keys`, and `finish`. A merge device sums the devices' arrays in the order of their
    ranks, and has memory for all of them.

    Args:
        comm: The devices of the worker.
        merge_devices: The merge device of each key, a rank of ``comm``.
        order: The keys in the order of their pushes.
        gradients: This device's gradients by key.
        totals: The sums of a merge device by key; the gradient itself if there is one device.
        values: The values that each device receives by key; a merge device broadcasts its own.
        compression: The compression of pushes, including a merge device's push to itself.

    Attributes:
        merged_keys: The keys that are summed here, in order.
        other_keys: The keys that are summed on other devices, in order.
        pushes: This device's pushes to merge devices, including itself.
        traffic: Bytes and messages that it sends in a round.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        merge_devices: Sequence[int],
        order: Sequence[int],
        gradients: Sequence[Float32Array],
        totals: Sequence[Float32Array],
        values: Sequence[Float32Array],
        compression: Compression | None = None,
    ) -> None:
        self._comm = comm
        self._compression = compression
        self.merged_keys = [key for key in order if merge_devices[key] == comm.rank]
        self.other_keys = [key for key in order if merge_devices[key] != comm.rank]
        self._merged = {
            key: self._open_merged_key(key, gradients[key], totals[key], values[key])
            for key in self.merged_keys
        }
        self._others = {
            key: self._open_other_key(key, merge_devices[key], gradients[key], values[key])
            for key in self.other_keys
        }
        self._receives = [
            request for merged in self._merged.values() for request in merged.receives
        ]
        self._values = [other.receive for other in self._others.values()]
        broadcasts = [request for merged in self._merged.values() for request in merged.broadcasts]
        sends = [other.send for other in self._others.values()]
        self._ending = [*self._values, *sends, *broadcasts]

    @property
    def pushes(self) -> list[Push]:
        merged = self._merged.values()
        others = self._others.values()
        return [*(key.own_push for key in merged), *(key.push for key in others)]

    @property
    def traffic(self) -> tuple[int, int]:
        pushed = [other.push.message.nbytes for other in self._others.values()]
        peers = range(self._comm.size - 1)
        values = [key.own_push.gradient.nbytes for key in self._merged.values() for _ in peers]
        return sum(pushed) + sum(values), len(pushed) + len(values)

    def _open_merged_key(
        self, key: int, gradient: Float32Array, total: Float32Array, value: Float32Array
    ) -> _MergedKey:
        comm = self._comm
        own_push = make_push(key, 0, gradient, self._compression)
        messages = [
            own_push.message
            if rank == comm.rank
            else allocate_receive_buffer(len(gradient), self._compression)
            for rank in range(comm.size)
        ]
        merged = _MergedKey(own_push, make_sum(messages, total, self._compression))
        for rank, message in enumerate(messages):
            if rank != comm.rank:
                merged.receives.append(comm.Recv_init(message, rank, 2 * key + _PUSH))
                merged.broadcasts.append(comm.Send_init(value, rank, 2 * key + _VALUE))
        return merged

    def _open_other_key(
        self, key: int, merge_device: int, gradient: Float32Array, value: Float32Array
    ) -> _OtherKey:
        push = make_push(key, 0, gradient, self._compression)
        send = self._comm.Send_init(push.message, merge_device, 2 * key + _PUSH)
        return _OtherKey(push, send, self._comm.Recv_init(value, merge_device, 2 * key + _VALUE))

    def begin(self) -> None:
        """Post the receives of a round, for pushes and values."""
        MPI.Prequest.Startall(self._receives)
        MPI.Prequest.Startall(self._values)

    def begin_values(self) -> None:
        """Post only the receives of values, for a pull without a push."""
        MPI.Prequest.Startall(self._values)

    def push(self, key: int) -> None:
        """Send the gradient of one of the `other_keys` to its merge device."""
        other = self._others[key]
        other.push.prepare()
        other.send.Start()

    def reduce(self, key: int) -> None:
        """Wait for all devices' gradients of a key on its merge device, and sum them."""
        merged = self._merged[key]
        merged.own_push.prepare()
        MPI.Request.Waitall(merged.receives)
        merged.reduce()

    def broadcast(self, key: int) -> None:
        """Send a key's value from its merge device to the other devices."""
        MPI.Prequest.Startall(self._merged[key].broadcasts)

    def finish(self) -> None:
        """Wait until all values have arrived and all sends are complete."""
        MPI.Request.Waitall(self._ending)

    def free(self) -> None:
        """Free the persistent requests."""
        for request in (*self._receives, *self._ending):
            request.Free()
