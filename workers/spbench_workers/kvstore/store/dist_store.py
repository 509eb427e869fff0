"""The ``dist`` stores on a device: its worker's arrays are summed, and servers keep the values."""

from __future__ import annotations

from collections.abc import Sequence

from mpi4py import MPI

from spbench_workers.kvstore.compression import Compression
from spbench_workers.kvstore.keys.arena import Arena, empty_views
from spbench_workers.kvstore.keys.sharding import Slot
from spbench_workers.kvstore.store.base import Sent
from spbench_workers.kvstore.store.reduce_broadcast import ReduceBroadcast
from spbench_workers.kvstore.store.server_client import ServerClient


class DistStore:
    """A worker's devices bring each key to its home; the home pushes, pulls and spreads it.

    Args:
        comm: All ranks of the job.
        worker: The devices of this rank's worker.
        homes: The home of each key among them: all on device 0, or dealt out.
        servers: The rank of each server.
        slots: The slots of each key.
        order: The keys in the order in which they go.
        gradients: What this device gives.
        values: What it gets.
        compression: How pushes travel to the servers.
        asynchronous: Whether a round does not bring what other workers pushed in it.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        worker: MPI.Intracomm,
        homes: Sequence[int],
        servers: Sequence[int],
        slots: Sequence[Sequence[Slot]],
        order: Sequence[int],
        gradients: Arena,
        values: Arena,
        compression: Compression | None,
        asynchronous: bool,
    ) -> None:
        self._asynchronous = asynchronous
        mine = [key for key in order if homes[key] == worker.rank]
        elements = [len(view) for view in gradients.views]
        totals = gradients.views if worker.size == 1 else empty_views(elements, mine)
        self._gathering = ReduceBroadcast(
            worker, homes, order, gradients.views, totals, values.views
        )
        self._uplink = ServerClient(
            comm, servers, [slots[key] for key in mine], totals, values.views, compression
        )
        self.pushes = self._uplink.pushes
        both = zip(self._gathering.sent, self._uplink.sent, strict=True)
        self.sent = Sent(*(inside + outside for inside, outside in both))

    def round(self) -> None:
        gathering, uplink = self._gathering, self._uplink
        gathering.begin()
        uplink.begin()
        for key in gathering.away:
            gathering.push(key)
        for key in gathering.home:
            gathering.collect(key)
            uplink.push(key)
        self._pull()

    def settle(self) -> None:
        if self._asynchronous:
            self._gathering.begin_values()
            self._uplink.begin_answers()
            self._pull()

    def free(self) -> None:
        self._gathering.free()
        self._uplink.free()

    def _pull(self) -> None:
        gathering, uplink = self._gathering, self._uplink
        for key in gathering.home:
            uplink.ask(key)
        for key in gathering.home:
            uplink.take(key)
            gathering.spread(key)
        uplink.finish()
        gathering.finish()
