"""Client of the servers on a merge device: pushes, acks and pulls of shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.compression import Compression
from spbench_workers.benchmarks.kvstore.keys.sharding import PULL, PUSH, TaggedShard
from spbench_workers.benchmarks.kvstore.store.base import Push, make_push


@dataclass(slots=True)
class _ShardRequests:
    """The push of one shard, and the persistent requests of its messages."""

    push: Push
    send: MPI.Prequest
    ack: MPI.Prequest
    pull_request: MPI.Prequest
    value: MPI.Prequest


class ServerClient:
    """Pushes to the servers and pulls from them by persistent requests.

    A round is `begin`, then `push`, `request_pull` and `wait_for_value` of each key, and `finish`.

    Args:
        comm: All ranks of the job.
        servers: The rank of each server.
        tagged_shards: The shards of each key that is merged on this rank, in the order of the
            pushes.
        totals: The worker's sums, which are pushed, by key.
        values: Memory for the values that are pulled, by key.
        compression: The compression of pushes; None pushes float32.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        servers: Sequence[int],
        tagged_shards: Sequence[Sequence[TaggedShard]],
        totals: Sequence[Float32Array],
        values: Sequence[Float32Array],
        compression: Compression | None,
    ) -> None:
        self._requests: dict[int, list[_ShardRequests]] = {}
        for shard in (shard for shards_of_key in tagged_shards for shard in shards_of_key):
            part = slice(shard.first, shard.last)
            push = make_push(shard.key, shard.first, totals[shard.key][part], compression)
            requests = _open_requests(
                comm, servers[shard.server], shard, push, values[shard.key][part]
            )
            self._requests.setdefault(shard.key, []).append(requests)
        all_requests = [
            requests for key_requests in self._requests.values() for requests in key_requests
        ]
        self.pushes = [requests.push for requests in all_requests]
        self._acks = [requests.ack for requests in all_requests]
        self._answers = [requests.value for requests in all_requests]
        self._sends = [
            request
            for requests in all_requests
            for request in (requests.send, requests.pull_request)
        ]

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes and messages that this rank sends to the servers in a round."""
        return sum(push.message.nbytes for push in self.pushes), 2 * len(self.pushes)

    def begin(self) -> None:
        """Post the receives of a round, for acks and values."""
        MPI.Prequest.Startall(self._acks)
        MPI.Prequest.Startall(self._answers)

    def begin_values(self) -> None:
        """Post only the receives of values, for a pull without a push.

        Without started ack requests, `request_pull` does not wait.
        """
        MPI.Prequest.Startall(self._answers)

    def push(self, key: int) -> None:
        """Send a key's shards to their servers."""
        for requests in self._requests.get(key, ()):
            requests.push.prepare()
            requests.send.Start()

    def request_pull(self, key: int) -> None:
        """Send the pull request of each shard of a key once its push is acked."""
        for requests in self._requests.get(key, ()):
            requests.ack.Wait()
            requests.pull_request.Start()

    def wait_for_value(self, key: int) -> None:
        """Wait until the values of all shards of a key have arrived."""
        for requests in self._requests.get(key, ()):
            requests.value.Wait()

    def finish(self) -> None:
        """Wait until all sends are complete."""
        MPI.Request.Waitall(self._sends)

    def free(self) -> None:
        """Free the persistent requests."""
        for request in (*self._acks, *self._answers, *self._sends):
            request.Free()


def _open_requests(
    comm: MPI.Intracomm, server: int, shard: TaggedShard, push: Push, value: Float32Array
) -> _ShardRequests:
    nothing = np.zeros(0, np.uint8)
    pushes = shard.tag(PUSH)
    pulls = shard.tag(PULL)
    return _ShardRequests(
        push,
        send=comm.Send_init(push.message, server, pushes),
        ack=comm.Recv_init(nothing, server, pushes),
        pull_request=comm.Send_init(nothing, server, pulls),
        value=comm.Recv_init(value, server, pulls),
    )
