"""A server rank: it answers pushes and pulls in the order in which they come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from mpi4py import MPI

from spbench_workers.kvstore.keys.sharding import PULL
from spbench_workers.kvstore.store.base import Sent
from spbench_workers.kvstore.store.pushes import Push
from spbench_workers.kvstore.store.server_shard import ServerShard


class ServerRank:
    """Serves as many messages as a round of all workers has, and then returns.

    A fast worker's next round may begin within; over rounds that all ranks make together the
    messages come out even, so that it needs no word that it is the end.

    Args:
        comm: All ranks of the job.
        shelves: Its shards, in the order of their indices.
        workers: The number of workers.
        devices: The number of each worker's devices: the ranks before the servers.
        asynchronous: Whether workers pull once more to settle.
    """

    pushes: Sequence[Push] = ()

    def __init__(
        self,
        comm: MPI.Intracomm,
        shelves: Sequence[ServerShard],
        workers: int,
        devices: int,
        asynchronous: bool,
    ) -> None:
        self.shelves, self._asynchronous = shelves, asynchronous
        self._comm, self._workers, self._devices = comm, workers, devices
        self._status = MPI.Status()
        sent = [shelf.sent for shelf in shelves]
        self.sent = Sent(sum(size for size, _ in sent), sum(count for _, count in sent))

    def round(self) -> None:
        self._serve(2 * self._workers * len(self.shelves))

    def settle(self) -> None:
        if self._asynchronous:
            self._serve(self._workers * len(self.shelves))

    def free(self) -> None:
        for shelf in self.shelves:
            shelf.finish()
            shelf.free()

    def _serve(self, messages: int) -> None:
        status, probe = self._status, self._comm.Probe
        for _ in repeat(None, messages):
            probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            worker = status.source // self._devices
            index, kind = divmod(status.tag, 2)
            if kind == PULL:
                self.shelves[index].pulled(worker)
            else:
                self.shelves[index].pushed(worker)
