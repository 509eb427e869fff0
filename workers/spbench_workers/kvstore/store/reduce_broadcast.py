"""Devices of one worker bring each key to its home, and its home brings the value to them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mpi4py import MPI

from spbench_workers.kvstore.compression import Compression
from spbench_workers.kvstore.keys.arena import Array
from spbench_workers.kvstore.store.pushes import Push, landing, push_of, summing

_PUSH, _VALUE = 0, 1


@dataclass(slots=True)
class _MergeDevice:
    """A key that is summed here: what comes for it and what leaves."""

    own: Push
    collect: Callable[[], None]
    receives: list[MPI.Prequest] = field(default_factory=list)
    spreads: list[MPI.Prequest] = field(default_factory=list)


@dataclass(slots=True)
class _OtherDevice:
    """A key that is summed elsewhere."""

    push: Push
    send: MPI.Prequest
    receive: MPI.Prequest


class ReduceBroadcast:
    """One device's part in it: persistent requests over fixed memory, in an order of keys.

    A round is `begin`, `push` of each key that is `away`, `collect` and `spread` of each that is
    at `home`, and `finish`. A home sums the devices' arrays in the order of their numbers, and has
    memory for all of them.

    Args:
        comm: The devices of the worker.
        homes: The home of each key among them.
        order: The keys in the order in which they go.
        gradients: What this device gives, by key.
        totals: Where a home sums, by key; the gradient itself, where there is one device.
        values: What each device gets, by key; a home's own is what it spreads.
        compression: How pushes travel; every device's is coded then, the home's too.

    Attributes:
        home: The keys that are summed here, in order.
        away: The others.
        pushes: What this device gives to homes, its own among them.
        sent: Bytes and messages that it sends in a round.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        homes: Sequence[int],
        order: Sequence[int],
        gradients: Sequence[Array],
        totals: Sequence[Array],
        values: Sequence[Array],
        compression: Compression | None = None,
    ) -> None:
        self._comm, self._compression = comm, compression
        self.home = [key for key in order if homes[key] == comm.rank]
        self.away = [key for key in order if homes[key] != comm.rank]
        self._homes = {
            key: self._at_home(key, gradients[key], totals[key], values[key]) for key in self.home
        }
        self._aways = {
            key: self._elsewhere(key, homes[key], gradients[key], values[key]) for key in self.away
        }
        self._comes = [request for home in self._homes.values() for request in home.receives]
        self._values = [away.receive for away in self._aways.values()]
        spreads = [request for home in self._homes.values() for request in home.spreads]
        self._leaves = [*self._values, *(away.send for away in self._aways.values()), *spreads]

    @property
    def pushes(self) -> list[Push]:
        homes, aways = self._homes.values(), self._aways.values()
        return [*(home.own for home in homes), *(away.push for away in aways)]

    @property
    def sent(self) -> tuple[int, int]:
        pushed = [away.push.message.nbytes for away in self._aways.values()]
        peers = self._comm.size - 1
        spread = [home.own.gradient.nbytes for home in self._homes.values() for _ in range(peers)]
        return sum(pushed) + sum(spread), len(pushed) + len(spread)

    def _at_home(self, key: int, gradient: Array, total: Array, value: Array) -> _MergeDevice:
        comm, own = self._comm, push_of(key, 0, gradient, self._compression)
        messages = [
            own.message if rank == comm.rank else landing(len(gradient), self._compression)
            for rank in range(comm.size)
        ]
        home = _MergeDevice(own, summing(messages, total, self._compression))
        for rank, message in enumerate(messages):
            if rank != comm.rank:
                home.receives.append(comm.Recv_init(message, rank, 2 * key + _PUSH))
                home.spreads.append(comm.Send_init(value, rank, 2 * key + _VALUE))
        return home

    def _elsewhere(self, key: int, home: int, gradient: Array, value: Array) -> _OtherDevice:
        push = push_of(key, 0, gradient, self._compression)
        send = self._comm.Send_init(push.message, home, 2 * key + _PUSH)
        return _OtherDevice(push, send, self._comm.Recv_init(value, home, 2 * key + _VALUE))

    def begin(self) -> None:
        """Make ready to receive all that comes in a round."""
        MPI.Prequest.Startall(self._comes)
        MPI.Prequest.Startall(self._values)

    def begin_values(self) -> None:
        """Make ready to receive values alone: nothing is pushed."""
        MPI.Prequest.Startall(self._values)

    def push(self, key: int) -> None:
        """Send a key that is away to its home."""
        away = self._aways[key]
        away.push.prepare()
        away.send.Start()

    def collect(self, key: int) -> None:
        """Wait until a key's gradients are all at home, and sum them."""
        home = self._homes[key]
        home.own.prepare()
        MPI.Request.Waitall(home.receives)
        home.collect()

    def spread(self, key: int) -> None:
        """Send a key's value from its home to the other devices."""
        MPI.Prequest.Startall(self._homes[key].spreads)

    def finish(self) -> None:
        """Wait until all values are there and all that was sent has left."""
        MPI.Request.Waitall(self._leaves)

    def free(self) -> None:
        """Give the requests back to MPI."""
        for request in (*self._comes, *self._leaves):
            request.Free()
