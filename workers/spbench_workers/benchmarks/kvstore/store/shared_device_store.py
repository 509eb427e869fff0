"""The stores ``local`` and ``device`` in shared memory of a host: nothing is sent.

A sum that is kept as it is needs no merge device, and each device computes a part of it. With an
optimizer a merge device sums its keys and updates the weights, which the others copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.keys.arena import Arena, allocate_key_views
from spbench_workers.benchmarks.kvstore.optimizers import registry
from spbench_workers.benchmarks.kvstore.store.base import SentTraffic
from spbench_workers.benchmarks.kvstore.store.pushes import Push, make_sum
from spbench_workers.benchmarks.kvstore.store.shared_sum import SharedWindow


class SharedDeviceStore:
    """A store of devices that see each other's gradients and values.

    Args:
        comm: The devices.
        window: Their memory: gradients are ``given`` and values ``sums``.
        merge_devices: The merge device of each key.
        order: The keys in the order in which they go.
        elements: Elements of each key.
        optimizer: The optimizer of a merge device; ``none`` keeps the sum itself.
    """

    pushes: Sequence[Push] = ()

    def __init__(
        self,
        comm: MPI.Intracomm,
        window: SharedWindow,
        merge_devices: Sequence[int],
        order: Sequence[int],
        elements: Sequence[int],
        optimizer: str,
    ) -> None:
        self._window = window
        self._comm = comm
        if optimizer == "none":
            total = window.open_sum(0, sum(elements))
            self.round: Callable[[], None] = total.run
            self.traffic = SentTraffic(total.traffic.bytes, 0)
            return
        self.round = self._round
        mine = [key for key in order if merge_devices[key] == comm.rank]
        given = [Arena(elements, memory=memory).views for memory in window.sources]
        values = [Arena(elements, memory=memory).views for memory in window.sums]
        totals = allocate_key_views(elements, mine)
        self._updates: list[Callable[[], None]] = []
        for key in mine:
            sources: list[Float32Array] = [views[key] for views in given]
            self._updates.append(make_sum(sources, totals[key], None))
            update = registry.create_optimizer(optimizer, elements[key]).update
            self._updates.append(partial(update, values[comm.rank][key], totals[key]))
        own = values[comm.rank]
        self._copies = [
            partial(np.copyto, own[key], values[device][key])
            for key, device in enumerate(merge_devices)
            if device != comm.rank
        ]
        written = sum(elements[key] for key in mine) * (comm.size - 1)
        self.traffic = SentTraffic(4 * written, 0)

    def _round(self) -> None:
        for steps in (self._updates, self._copies):
            # All gradients are there, and then all weights; nobody copies those of last time now.
            self._window.synchronize()
            for step in steps:
                step()

    def settle(self) -> None:
        pass

    def free(self) -> None:
        """Do nothing: the window owns the memory."""
