"""Stores ``local`` and ``device``, with messages or in shared memory of a host.

There is no server. With messages, each key is summed on its merge device. Shared memory needs no
messages. Without an optimizer each device sums a part of all keys. With an optimizer a merge device
sums its keys and updates the weights, and the others copy them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.compression import Compression
from spbench_workers.benchmarks.kvstore.keys.arena import Arena, allocate_key_views
from spbench_workers.benchmarks.kvstore.optimizers import registry
from spbench_workers.benchmarks.kvstore.store.base import Push, SentTraffic, make_sum
from spbench_workers.benchmarks.kvstore.store.reduce_broadcast import ReduceBroadcast
from spbench_workers.benchmarks.kvstore.store.shared_sum import SharedWindow


class DeviceStore:
    """A store that reduces gradients to merge devices and broadcasts the values.

    With device 0 as the merge device of every key it is ``local``: n arrays are sent to one device
    and n return. A merge device keeps the value in its pulled array, which no other part of the
    round writes.

    Args:
        comm: The devices.
        merge_devices: The merge device of each key.
        order: The keys in the order of their pushes.
        gradients: This device's gradients.
        values: Memory for the pulled values.
        optimizer: The optimizer of a merge device; ``none`` keeps the sum itself.
        compression: The compression of pushes; None pushes float32.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        merge_devices: Sequence[int],
        order: Sequence[int],
        gradients: Arena,
        values: Arena,
        optimizer: str,
        compression: Compression | None,
    ) -> None:
        elements = [len(view) for view in gradients.views]
        merged_keys = [key for key in order if merge_devices[key] == comm.rank]
        self._values = values.views
        self._totals = (
            values.views if optimizer == "none" else allocate_key_views(elements, merged_keys)
        )
        self._optimizers = {
            key: registry.create_optimizer(optimizer, elements[key])
            for key in merged_keys
            if optimizer != "none"
        }
        self._devices = ReduceBroadcast(
            comm, merge_devices, order, gradients.views, self._totals, values.views, compression
        )
        self.pushes = self._devices.pushes
        self.traffic = SentTraffic(*self._devices.traffic)

    def round(self) -> None:
        devices = self._devices
        devices.begin()
        for key in devices.other_keys:
            devices.push(key)
        for key in devices.merged_keys:
            devices.reduce(key)
            if self._optimizers:
                self._optimizers[key].update(self._values[key], self._totals[key])
            devices.broadcast(key)
        devices.finish()

    def settle(self) -> None:
        pass

    def free(self) -> None:
        self._devices.free()


class SharedDeviceStore:
    """A store of devices that share the memory of gradients and values.

    Args:
        comm: The devices.
        window: Their memory, with gradients in ``sources`` and values in ``sums``.
        merge_devices: The merge device of each key.
        order: The keys in the order of their pushes.
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
        self.round = self._run_round
        merged_keys = [key for key in order if merge_devices[key] == comm.rank]
        gradients = [Arena(elements, memory=memory).views for memory in window.sources]
        values = [Arena(elements, memory=memory).views for memory in window.sums]
        totals = allocate_key_views(elements, merged_keys)
        self._update_steps: list[Callable[[], None]] = []
        for key in merged_keys:
            sources: list[Float32Array] = [views[key] for views in gradients]
            self._update_steps.append(make_sum(sources, totals[key], None))
            update = registry.create_optimizer(optimizer, elements[key]).update
            self._update_steps.append(partial(update, values[comm.rank][key], totals[key]))
        own_values = values[comm.rank]
        self._value_copies = [
            partial(np.copyto, own_values[key], values[device][key])
            for key, device in enumerate(merge_devices)
            if device != comm.rank
        ]
        written_elements = sum(elements[key] for key in merged_keys) * (comm.size - 1)
        self.traffic = SentTraffic(4 * written_elements, 0)

    def _run_round(self) -> None:
        for steps in (self._update_steps, self._value_copies):
            # All gradients, and then all weights, are complete; no rank copies old weights now.
            self._window.synchronize()
            for step in steps:
                step()

    def settle(self) -> None:
        pass

    def free(self) -> None:
        """Do nothing: the window owns the memory."""
