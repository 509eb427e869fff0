"""The stores ``local`` and ``device``: no server, each key is summed by one device, its home."""

from __future__ import annotations

from collections.abc import Sequence

from mpi4py import MPI

from spbench_workers.kvstore import optimizers
from spbench_workers.kvstore.compression import Compression
from spbench_workers.kvstore.keys.arena import Arena, empty_views
from spbench_workers.kvstore.store.base import Sent
from spbench_workers.kvstore.store.reduce_broadcast import ReduceBroadcast


class DeviceStore:
    """Gradients go to their key's home, are summed there, and copies of the value come back.

    With every key at home on device 0 it is ``local``: n arrays go up to one host and n come down.
    A home keeps the value in its own pulled array, which no other part of the round writes to.

    Args:
        comm: The devices.
        homes: The home of each key.
        order: The keys in the order in which they go.
        gradients: What this device gives.
        values: What it gets.
        optimizer: What a home does with a sum; ``none`` keeps the sum itself.
        compression: How pushes travel.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        homes: Sequence[int],
        order: Sequence[int],
        gradients: Arena,
        values: Arena,
        optimizer: str,
        compression: Compression | None,
    ) -> None:
        elements = [len(view) for view in gradients.views]
        mine = [key for key in order if homes[key] == comm.rank]
        self._values = values.views
        self._totals = values.views if optimizer == "none" else empty_views(elements, mine)
        self._optimizers = {
            key: optimizers.make(optimizer, elements[key]) for key in mine if optimizer != "none"
        }
        self._gathering = ReduceBroadcast(
            comm, homes, order, gradients.views, self._totals, values.views, compression
        )
        self.pushes = self._gathering.pushes
        self.sent = Sent(*self._gathering.sent)

    def round(self) -> None:
        gathering = self._gathering
        gathering.begin()
        for key in gathering.away:
            gathering.push(key)
        for key in gathering.home:
            gathering.collect(key)
            if self._optimizers:
                self._optimizers[key].update(self._values[key], self._totals[key])
            gathering.spread(key)
        gathering.finish()

    def settle(self) -> None:
        pass

    def free(self) -> None:
        self._gathering.free()
