"""Halo exchanges that go wrong on purpose, to show that the check notices."""

from __future__ import annotations

import torch

from spbench_workers.context import Context
from spbench_workers.spatial.exchange import HaloExchange
from spbench_workers.spatial.partition import HaloTable


class NothingToCorruptError(RuntimeError):
    """A fault was to be planted in a halo, and there is none."""


class CorruptHalo(HaloExchange):
    """One value of the halo has the wrong sign."""

    def run(self) -> None:
        super().run()
        value = self.received[0][0, 0, -1, -1]
        value.copy_(-value)


class DropHalo(HaloExchange):
    """One received piece is not copied in."""

    def copy_in(self, region: torch.Tensor, received: torch.Tensor) -> None:
        if region is not self.received[0]:
            super().copy_in(region, received)


class StaleHalo(HaloExchange):
    """The halo stays what it was after the first exchange."""

    _first: list[torch.Tensor] | None = None

    def run(self) -> None:
        super().run()
        if self._first is None:
            self._first = [region.clone() for region in self.received]
        for region, old in zip(self.received, self._first, strict=True):
            region.copy_(old)


_FAULTS = {"corrupt-halo": CorruptHalo, "drop-halo": DropHalo, "stale-halo": StaleHalo}


def exchange_class(context: Context, table: HaloTable) -> type[HaloExchange]:
    """Return the class that this rank is to exchange with.

    Raises:
        NothingToCorruptError: This rank is to show a fault and has no halo.
    """
    for fault, faulty in _FAULTS.items():
        if context.planted(fault):
            if not table.received_by(context.world.rank):
                raise NothingToCorruptError(
                    f"{fault}: rank {context.world.rank} has no halo to spoil; take more tiles"
                )
            return faulty
    return HaloExchange
