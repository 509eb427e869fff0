"""The client of the servers on a merge device: it pushes shards, awaits acks, and pulls values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.compression import Compression
from spbench_workers.benchmarks.kvstore.keys.sharding import PULL, PUSH, Slot
from spbench_workers.benchmarks.kvstore.store.pushes import Push, make_push


@dataclass(slots=True)
class _ShardRequests:
    """The push of one shard, and the persistent requests of its messages."""

    push: Push
    send: MPI.Prequest
    ack: MPI.Prequest
    ask: MPI.Prequest
    answer: MPI.Prequest


class ServerClient:
    """Pushes to the servers and pulls from them: persistent requests over fixed memory.

    A round is `begin`, `push` of each key, `ask` for each key, `take` of each, and `finish`.

    Args:
        comm: All ranks of the job.
        servers: The rank of each server.
        slots: The slots of each key whose merge device is this rank, in the order in which they
            go.
        totals: The worker's sums, which are pushed, by key.
        values: Memory for the values that are pulled, by key.
        compression: The compression of pushes; None pushes float32.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        servers: Sequence[int],
        slots: Sequence[Sequence[Slot]],
        totals: Sequence[Float32Array],
        values: Sequence[Float32Array],
        compression: Compression | None,
    ) -> None:
        self._requests: dict[int, list[_ShardRequests]] = {}
        for slot in (slot for slots_of_key in slots for slot in slots_of_key):
            part = slice(slot.first, slot.last)
            push = make_push(slot.key, slot.first, totals[slot.key][part], compression)
            one = _requests(comm, servers[slot.server], slot, push, values[slot.key][part])
            self._requests.setdefault(slot.key, []).append(one)
        every = [one for requests in self._requests.values() for one in requests]
        self.pushes = [one.push for one in every]
        self._acks = [one.ack for one in every]
        self._answers = [one.answer for one in every]
        self._sends = [request for one in every for request in (one.send, one.ask)]

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes and messages that this rank sends to the servers in a round."""
        return sum(push.message.nbytes for push in self.pushes), 2 * len(self.pushes)

    def begin(self) -> None:
        """Post the receives of a round: acks and values."""
        MPI.Prequest.Startall(self._acks)
        MPI.Prequest.Startall(self._answers)

    def begin_values(self) -> None:
        """Post the receives of values only: nothing is pushed, hence `ask` waits for no ack."""
        MPI.Prequest.Startall(self._answers)

    def push(self, key: int) -> None:
        """Send a key's shards to their servers."""
        for requests in self._requests.get(key, ()):
            requests.push.prepare()
            requests.send.Start()

    def request_pull(self, key: int) -> None:
        """Send the pull requests of a key's shards, each once the push of its shard is acked."""
        for requests in self._requests.get(key, ()):
            requests.ack.Wait()
            requests.ask.Start()

    def wait_for_value(self, key: int) -> None:
        """Wait until the values of all shards of a key have come."""
        for requests in self._requests.get(key, ()):
            requests.answer.Wait()

    def finish(self) -> None:
        """Wait until all sends have ended."""
        MPI.Request.Waitall(self._sends)

    def free(self) -> None:
        """Free the persistent requests."""
        for request in (*self._acks, *self._answers, *self._sends):
            request.Free()


def _requests(
    comm: MPI.Intracomm, server: int, slot: Slot, push: Push, value: Float32Array
) -> _ShardRequests:
    nothing = np.zeros(0, np.uint8)
    pushes = slot.tag(PUSH)
    pulls = slot.tag(PULL)
    return _ShardRequests(
        push,
        send=comm.Send_init(push.message, server, pushes),
        ack=comm.Recv_init(nothing, server, pushes),
        ask=comm.Send_init(nothing, server, pulls),
        answer=comm.Recv_init(value, server, pulls),
    )
