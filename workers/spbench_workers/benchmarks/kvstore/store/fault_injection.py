"""Fault injection on the last rank, to show that the checks notice.

A device loses or doubles its push of one key, or pulls a wrong number; a server does so with one
of its shards, where every device sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from spbench_parallel.errors import FaultWithoutEffectError
from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.keys.sharding import Slot
from spbench_workers.benchmarks.kvstore.store.memory import StoreMemory
from spbench_workers.benchmarks.kvstore.store.server_shard import AsyncServerShard, SyncServerShard
from spbench_workers.context import Context

_Kind = TypeVar("_Kind")

LOST_PUSH = "lost-push"
DOUBLE_PUSH = "double-push"
WRONG_ELEMENT = "wrong-element"


def corrupt_gradients(context: Context, gradients: Sequence[Float32Array]) -> None:
    """Change the gradients that this device pushes, where ``--inject`` asks for it.

    Raises:
        NothingToSpoilError: The device is to lose or double a push, and holds no element.
    """
    if context.planted(LOST_PUSH):
        _largest(context, LOST_PUSH, gradients).fill(0.0)
    elif context.planted(DOUBLE_PUSH):
        gradient = _largest(context, DOUBLE_PUSH, gradients)
        np.multiply(gradient, 2.0, out=gradient)


def corrupt_round(
    context: Context, round_: Callable[[], None], memory: StoreMemory
) -> Callable[[], None]:
    """Return a round in which this device pulls a wrong number, where ``--inject`` asks for it.

    Raises:
        NothingToSpoilError: The device is to pull a wrong number, and holds no element.
    """
    if not context.planted(WRONG_ELEMENT):
        return round_
    if not memory.device_values.numel():
        raise _nothing(context, WRONG_ELEMENT)
    element = memory.device_values[memory.device_values.numel() // 2 :][:1]

    def spoiled() -> None:
        round_()
        element.add_(1.0)

    return spoiled


def choose_faulty_slot(context: Context, slots: Sequence[Slot]) -> Slot | None:
    """Return the shard in which this server is to have a fault; None without a fault.

    Raises:
        NothingToSpoilError: The server is to have a fault, and keeps no element.
    """
    fault = next((name for name in FAULTY_SYNC_SHARDS if context.planted(name)), None)
    if fault is None:
        return None
    largest = max(slots, key=lambda slot: slot.count, default=None)
    if largest is None or not largest.count:
        raise _nothing(context, fault)
    return largest


def choose_faulty_class(context: Context, kinds: Mapping[str, type[_Kind]]) -> type[_Kind]:
    """Return the class of shard with the fault that is injected, out of SYNC or ASYNC."""
    return next(kind for fault, kind in kinds.items() if context.planted(fault))


def _largest(context: Context, fault: str, views: Sequence[Float32Array]) -> Float32Array:
    """Return the largest array: an optimizer may hide a fault in a single number."""
    largest = max(views, key=len)
    if not len(largest):
        raise _nothing(context, fault)
    return largest


def _nothing(context: Context, fault: str) -> FaultWithoutEffectError:
    return FaultWithoutEffectError(
        f"{fault}: rank {context.world.rank} holds no element that could be spoiled; "
        "take another network, or fewer servers"
    )


class _LosingSync(SyncServerShard):
    """A shard that receives the first push of a round and does not add it."""

    def _take(self, worker: int, *, first: bool) -> None:
        super()._take(worker, first=first)
        if first:
            self._merged.fill(0.0)


class _DoublingSync(SyncServerShard):
    """A shard that adds the first push of a round twice."""

    def _take(self, worker: int, *, first: bool) -> None:
        super()._take(worker, first=first)
        if first:
            np.add(self._merged, self._merged, out=self._merged)
            self._admit(worker)


class _WrongSync(SyncServerShard):
    """A shard with one wrong number in its value."""

    def _complete(self) -> None:
        super()._complete()
        self.value[len(self.value) // 2] += 1.0


class _LosingAsync(AsyncServerShard):
    """A shard whose value no push changes."""

    def _change(self) -> None:
        pass


class _DoublingAsync(AsyncServerShard):
    """A shard whose value each push changes twice."""

    def _change(self) -> None:
        super()._change()
        super()._change()


class _WrongAsync(AsyncServerShard):
    """A shard with one wrong number in its value."""

    def _change(self) -> None:
        super()._change()
        self.value[len(self.value) // 2] += 1.0


FAULTY_SYNC_SHARDS: Mapping[str, type[SyncServerShard]] = {
    LOST_PUSH: _LosingSync,
    DOUBLE_PUSH: _DoublingSync,
    WRONG_ELEMENT: _WrongSync,
}
FAULTY_ASYNC_SHARDS: Mapping[str, type[AsyncServerShard]] = {
    LOST_PUSH: _LosingAsync,
    DOUBLE_PUSH: _DoublingAsync,
    WRONG_ELEMENT: _WrongAsync,
}
"""The class of shard with each fault, of synchronous and of asynchronous stores."""
