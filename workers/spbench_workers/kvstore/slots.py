"""Which shard of which key stands where on a server, and the tags of the messages about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spbench_workers.kvstore.sharding import Shards

PUSH, PULL = 0, 1
"""To a server: a gradient; the wish for a value. From it: that a push is done; the value."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Elements ``first`` up to ``last`` of a key, number ``index`` of its server's shards."""

    server: int
    index: int
    key: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.last - self.first

    def tag(self, kind: int) -> int:
        """Return the tag of a message about it: PUSH or PULL."""
        return 2 * self.index + kind


def slots_of(shards: Shards, servers: int) -> list[list[Slot]]:
    """Return the slots of each key. Every rank comes to the same."""
    counts = [0] * servers
    slots: list[list[Slot]] = []
    for key, shards_of_key in enumerate(shards):
        slots.append([])
        for shard in shards_of_key:
            index = counts[shard.server]
            counts[shard.server] += 1
            slots[-1].append(Slot(shard.server, index, key, shard.first, shard.last))
    return slots


def slots_on(slots: Sequence[Sequence[Slot]], server: int) -> list[Slot]:
    """Return a server's slots, in the order of their indices."""
    return [slot for slots_of_key in slots for slot in slots_of_key if slot.server == server]
