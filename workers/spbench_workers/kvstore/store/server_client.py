"""One rank of a worker before the servers: it pushes shards, waits for their acks and pulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from spbench_workers.kvstore.compression import Compression
from spbench_workers.kvstore.keys.arena import Array
from spbench_workers.kvstore.keys.sharding import PULL, PUSH, Slot
from spbench_workers.kvstore.store.pushes import Push, push_of


@dataclass(slots=True)
class _Line:
    """The messages about one shard."""

    push: Push
    send: MPI.Prequest
    ack: MPI.Prequest
    ask: MPI.Prequest
    answer: MPI.Prequest


class ServerClient:
    """Persistent requests to the servers, over fixed memory.

    A round is `begin`, `push` of each key, `ask` for each key, `take` of each, and `finish`.

    Args:
        comm: All ranks of the job.
        servers: The rank of each server.
        slots: The slots of the keys that this rank stands for, in the order in which they go.
        totals: What it pushes, by key.
        values: Where the answers go, by key.
        compression: How pushes travel.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        servers: Sequence[int],
        slots: Sequence[Sequence[Slot]],
        totals: Sequence[Array],
        values: Sequence[Array],
        compression: Compression | None,
    ) -> None:
        self._lines: dict[int, list[_Line]] = {}
        for slot in (slot for slots_of_key in slots for slot in slots_of_key):
            part = slice(slot.first, slot.last)
            push = push_of(slot.key, slot.first, totals[slot.key][part], compression)
            line = _line(comm, servers[slot.server], slot, push, values[slot.key][part])
            self._lines.setdefault(slot.key, []).append(line)
        lines = [line for lines_of_key in self._lines.values() for line in lines_of_key]
        self.pushes = [line.push for line in lines]
        self._acks = [line.ack for line in lines]
        self._answers = [line.answer for line in lines]
        self._leaves = [request for line in lines for request in (line.send, line.ask)]

    @property
    def sent(self) -> tuple[int, int]:
        """Bytes and messages of a round."""
        return sum(push.message.nbytes for push in self.pushes), 2 * len(self.pushes)

    def begin(self) -> None:
        """Make ready to receive acks and answers."""
        MPI.Prequest.Startall(self._acks)
        MPI.Prequest.Startall(self._answers)

    def begin_answers(self) -> None:
        """Make ready to receive answers alone: nothing is pushed, hence `ask` waits for no ack."""
        MPI.Prequest.Startall(self._answers)

    def push(self, key: int) -> None:
        """Send a key's shards to their servers."""
        for line in self._lines.get(key, ()):
            line.push.prepare()
            line.send.Start()

    def ask(self, key: int) -> None:
        """Ask for the value of each of a key's shards, once its push is acked."""
        for line in self._lines.get(key, ()):
            line.ack.Wait()
            line.ask.Start()

    def take(self, key: int) -> None:
        """Wait until a key's value is there."""
        for line in self._lines.get(key, ()):
            line.answer.Wait()

    def finish(self) -> None:
        """Wait until all that was sent has left."""
        MPI.Request.Waitall(self._leaves)

    def free(self) -> None:
        """Give the requests back to MPI."""
        for request in (*self._acks, *self._answers, *self._leaves):
            request.Free()


def _line(comm: MPI.Intracomm, server: int, slot: Slot, push: Push, value: Array) -> _Line:
    nothing = np.zeros(0, np.uint8)
    pushes, pulls = slot.tag(PUSH), slot.tag(PULL)
    return _Line(
        push,
        send=comm.Send_init(push.message, server, pushes),
        ack=comm.Recv_init(nothing, server, pushes),
        ask=comm.Send_init(nothing, server, pulls),
        answer=comm.Recv_init(value, server, pulls),
    )
