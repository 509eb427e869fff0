"""The ``dist`` stores on a device: a worker's gradients are summed, and servers keep the values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.compression import Compression
from spbench_workers.benchmarks.kvstore.keys.arena import Arena, allocate_key_views
from spbench_workers.benchmarks.kvstore.keys.sharding import PULL, Slot
from spbench_workers.benchmarks.kvstore.store.base import SentTraffic
from spbench_workers.benchmarks.kvstore.store.pushes import Push
from spbench_workers.benchmarks.kvstore.store.reduce_broadcast import ReduceBroadcast
from spbench_workers.benchmarks.kvstore.store.server_client import ServerClient
from spbench_workers.benchmarks.kvstore.store.server_shard import ServerShard


class DistStore:
    """A reduction to merge devices, which push to the servers, pull, and broadcast the values.

    Args:
        comm: All ranks of the job.
        worker: The devices of this rank's worker.
        merge_devices: The merge device of each key among them: device 0 for all, or spread out.
        servers: The rank of each server.
        slots: The slots of each key.
        order: The keys in the order in which they go.
        gradients: This device's gradients.
        values: Memory for the values that it pulls.
        compression: The compression of pushes to the servers; None pushes float32.
        asynchronous: Whether a pull does not wait for the round's pushes of other workers.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        worker: MPI.Intracomm,
        merge_devices: Sequence[int],
        servers: Sequence[int],
        slots: Sequence[Sequence[Slot]],
        order: Sequence[int],
        gradients: Arena,
        values: Arena,
        compression: Compression | None,
        asynchronous: bool,
    ) -> None:
        self._asynchronous = asynchronous
        mine = [key for key in order if merge_devices[key] == worker.rank]
        elements = [len(view) for view in gradients.views]
        totals = gradients.views if worker.size == 1 else allocate_key_views(elements, mine)
        self._devices = ReduceBroadcast(
            worker, merge_devices, order, gradients.views, totals, values.views
        )
        self._servers = ServerClient(
            comm, servers, [slots[key] for key in mine], totals, values.views, compression
        )
        self.pushes = self._servers.pushes
        both = zip(self._devices.traffic, self._servers.traffic, strict=True)
        self.traffic = SentTraffic(*(inside + outside for inside, outside in both))

    def round(self) -> None:
        devices = self._devices
        servers = self._servers
        devices.begin()
        servers.begin()
        for key in devices.other_keys:
            devices.push(key)
        for key in devices.merged_keys:
            devices.reduce(key)
            servers.push(key)
        self._pull()

    def settle(self) -> None:
        if self._asynchronous:
            self._devices.begin_values()
            self._servers.begin_values()
            self._pull()

    def free(self) -> None:
        self._devices.free()
        self._servers.free()

    def _pull(self) -> None:
        devices = self._devices
        servers = self._servers
        for key in devices.merged_keys:
            servers.request_pull(key)
        for key in devices.merged_keys:
            servers.wait_for_value(key)
            devices.broadcast(key)
        servers.finish()
        devices.finish()


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
