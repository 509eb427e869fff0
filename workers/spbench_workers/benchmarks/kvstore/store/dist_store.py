"""The ``dist`` stores on a device: a worker's gradients are summed, and servers keep the values."""

from __future__ import annotations

from collections.abc import Sequence

from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.compression import Compression
from spbench_workers.benchmarks.kvstore.keys.arena import Arena, allocate_key_views
from spbench_workers.benchmarks.kvstore.keys.sharding import Slot
from spbench_workers.benchmarks.kvstore.store.base import SentTraffic
from spbench_workers.benchmarks.kvstore.store.reduce_broadcast import ReduceBroadcast
from spbench_workers.benchmarks.kvstore.store.server_client import ServerClient


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
