"""A server rank: it answers pushes and pulls in the order in which they come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.keys.sharding import PULL
from spbench_workers.benchmarks.kvstore.store.base import SentTraffic
from spbench_workers.benchmarks.kvstore.store.pushes import Push
from spbench_workers.benchmarks.kvstore.store.server_shard import ServerShard


class ServerRank:
    """A server that handles as many messages as all workers send in a round, and then returns.

    A fast worker's next round may begin within it; over the rounds that all ranks make together the
    numbers of messages are equal, so that no message is needed to end the service.

    Args:
        comm: All ranks of the job.
        shards: The shards that it keeps, in the order of their indices.
        workers: The number of workers.
        devices: The number of each worker's devices: the ranks before the servers.
        asynchronous: Whether workers pull once more to settle.
    """

    pushes: Sequence[Push] = ()

    def __init__(
        self,
        comm: MPI.Intracomm,
        shards: Sequence[ServerShard],
        workers: int,
        devices: int,
        asynchronous: bool,
    ) -> None:
        self.shards = shards
        self._asynchronous = asynchronous
        self._comm = comm
        self._workers = workers
        self._devices = devices
        self._status = MPI.Status()
        sent = [shard.traffic for shard in shards]
        self.traffic = SentTraffic(sum(size for size, _ in sent), sum(count for _, count in sent))

    def round(self) -> None:
        self._serve(2 * self._workers * len(self.shards))

    def settle(self) -> None:
        if self._asynchronous:
            self._serve(self._workers * len(self.shards))

    def free(self) -> None:
        for shard in self.shards:
            shard.finish()
            shard.free()

    def _serve(self, messages: int) -> None:
        status = self._status
        probe = self._comm.Probe
        for _ in repeat(None, messages):
            probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            worker = status.source // self._devices
            index, kind = divmod(status.tag, 2)
            if kind == PULL:
                self.shards[index].handle_pull(worker)
            else:
                self.shards[index].handle_push(worker)
