"""Fault injection on one rank, to test the checks.

A device loses or doubles its push of one key, or pulls a wrong number. On a server the fault is in
one of its shards and affects every device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from spbench_parallel.errors import FaultWithoutEffectError
from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.keys.sharding import TaggedShard
from spbench_workers.benchmarks.kvstore.store.memory import StoreMemory
from spbench_workers.benchmarks.kvstore.store.server_shard import AsyncServerShard, SyncServerShard
from spbench_workers.context import Context

_Kind = TypeVar("_Kind")

LOST_PUSH = "lost-push"
DOUBLE_PUSH = "double-push"
WRONG_ELEMENT = "wrong-element"


def corrupt_gradients(context: Context, gradients: Sequence[Float32Array]) -> None:
    """Change the gradients that this device pushes if ``--inject`` requests it.

    Raises:
        FaultWithoutEffectError: The fault is for this device, which has no element.
    """
    if context.planted(LOST_PUSH):
        _find_largest(context, LOST_PUSH, gradients).fill(0.0)
    elif context.planted(DOUBLE_PUSH):
        gradient = _find_largest(context, DOUBLE_PUSH, gradients)
        np.multiply(gradient, 2.0, out=gradient)


def corrupt_round(
    context: Context, round_: Callable[[], None], memory: StoreMemory
) -> Callable[[], None]:
    """Return the round, with a wrong pulled number if ``--inject`` requests it.

    Raises:
        FaultWithoutEffectError: The fault is for this device, which has no element.
    """
    if not context.planted(WRONG_ELEMENT):
        return round_
    if not memory.device_values.numel():
        raise _make_error(context, WRONG_ELEMENT)
    element = memory.device_values[memory.device_values.numel() // 2 :][:1]

    def run_and_corrupt() -> None:
        round_()
        element.add_(1.0)

    return run_and_corrupt


def choose_faulty_shard(
    context: Context, tagged_shards: Sequence[TaggedShard]
) -> TaggedShard | None:
    """Return the shard of this server for the injected fault; None without a fault.

    Raises:
        FaultWithoutEffectError: The fault is for this server, which has no element.
    """
    fault = next((name for name in FAULTY_SYNC_SHARDS if context.planted(name)), None)
    if fault is None:
        return None
    largest = max(tagged_shards, key=lambda shard: shard.count, default=None)
    if largest is None or not largest.count:
        raise _make_error(context, fault)
    return largest


def choose_faulty_class(context: Context, kinds: Mapping[str, type[_Kind]]) -> type[_Kind]:
    """Return the shard class with the injected fault from one of the tables below."""
    return next(kind for fault, kind in kinds.items() if context.planted(fault))


def _find_largest(context: Context, fault: str, views: Sequence[Float32Array]) -> Float32Array:
    """Return the largest array, because an optimizer may hide a fault in one number."""
    largest = max(views, key=len)
    if not len(largest):
        raise _make_error(context, fault)
    return largest


def _make_error(context: Context, fault: str) -> FaultWithoutEffectError:
    return FaultWithoutEffectError(
        f"{fault}: rank {context.world.rank} holds no element that could be spoiled; "
        "take another network, or fewer servers"
    )


class _LosingSync(SyncServerShard):
    """A shard that does not add the first push of a round."""

    def _add_push(self, worker: int, *, first: bool) -> None:
        super()._add_push(worker, first=first)
        if first:
            self._merged.fill(0.0)


class _DoublingSync(SyncServerShard):
    """A shard that adds the first push of a round twice."""

    def _add_push(self, worker: int, *, first: bool) -> None:
        super()._add_push(worker, first=first)
        if first:
            np.add(self._merged, self._merged, out=self._merged)
            self._mark_unacked(worker)


class _WrongSync(SyncServerShard):
    """A shard with one wrong number in its value."""

    def _complete_round(self) -> None:
        super()._complete_round()
        self.value[len(self.value) // 2] += 1.0


class _LosingAsync(AsyncServerShard):
    """A shard that ignores all pushes."""

    def _apply_push(self) -> None:
        pass


class _DoublingAsync(AsyncServerShard):
    """A shard that applies each push twice."""

    def _apply_push(self) -> None:
        super()._apply_push()
        super()._apply_push()


class _WrongAsync(AsyncServerShard):
    """A shard with one wrong number in its value."""

    def _apply_push(self) -> None:
        super()._apply_push()
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
"""Shard classes by fault, for synchronous and for asynchronous stores."""
