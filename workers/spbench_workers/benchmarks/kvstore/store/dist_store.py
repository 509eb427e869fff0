"""Stores ``dist``: devices sum a worker's gradients, and servers keep the values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.compression import Compression
from spbench_workers.benchmarks.kvstore.keys.arena import Arena, allocate_key_views
from spbench_workers.benchmarks.kvstore.keys.sharding import PULL, TaggedShard
from spbench_workers.benchmarks.kvstore.store.base import Push, SentTraffic
from spbench_workers.benchmarks.kvstore.store.reduce_broadcast import ReduceBroadcast
from spbench_workers.benchmarks.kvstore.store.server_client import ServerClient
from spbench_workers.benchmarks.kvstore.store.server_shard import ServerShard


class DistStore:
    """A device's part: merge devices reduce, push to the servers, pull, and broadcast.

    Args:
        comm: All ranks of the job.
        worker: The devices of this rank's worker.
        merge_devices: The merge device of each key in ``worker``: device 0 for all, or spread out.
        servers: The rank of each server.
        tagged_shards: The tagged shards of each key.
        order: The keys in the order of their pushes.
        gradients: This device's gradients.
        values: Memory for the pulled values.
        compression: The compression of pushes to the servers; None pushes float32.
        asynchronous: Whether a pull does not wait for the round's pushes of other workers.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        worker: MPI.Intracomm,
        merge_devices: Sequence[int],
        servers: Sequence[int],
        tagged_shards: Sequence[Sequence[TaggedShard]],
        order: Sequence[int],
        gradients: Arena,
        values: Arena,
        compression: Compression | None,
        asynchronous: bool,
    ) -> None:
        self._asynchronous = asynchronous
        merged_keys = [key for key in order if merge_devices[key] == worker.rank]
        elements = [len(view) for view in gradients.views]
        totals = gradients.views if worker.size == 1 else allocate_key_views(elements, merged_keys)
        self._devices = ReduceBroadcast(
            worker, merge_devices, order, gradients.views, totals, values.views
        )
        self._servers = ServerClient(
            comm,
            servers,
            [tagged_shards[key] for key in merged_keys],
            totals,
            values.views,
            compression,
        )
        self.pushes = self._servers.pushes
        pairs = zip(self._devices.traffic, self._servers.traffic, strict=True)
        self.traffic = SentTraffic(*(inside + outside for inside, outside in pairs))

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
    """A server that answers pushes and pulls in their order of arrival.

    A round handles as many messages as all workers send in a round. Some of them may belong to the
    next round of a fast worker. Over the same number of rounds on all ranks the counts are equal,
    so that no message has to end the service.

    Args:
        comm: All ranks of the job.
        shards: The shards that it keeps, in the order of their indices.
        workers: The number of workers.
        devices: The number of each worker's devices, which are the ranks before the servers.
        asynchronous: Whether `settle` answers another pull of all workers.
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
        traffic = [shard.traffic for shard in shards]
        self.traffic = SentTraffic(
            sum(size for size, _ in traffic), sum(count for _, count in traffic)
        )

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
