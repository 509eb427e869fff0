"""Independent expected values of a store: optimizers in float64, and compression.

They share neither code nor constants with the package `optimizers`, and use different forms of the
same formulas where possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import (
    Float32Array,
    Float64Array,
    FloatArray,
    Gradients,
)
from spbench_workers.benchmarks.kvstore.case import StoreCase
from spbench_workers.benchmarks.kvstore.keys.sharding import TaggedShard
from spbench_workers.benchmarks.kvstore.verification.error_bound import UNIT, ErrorBound

_ARRAYS = dict.fromkeys(("momentum", "nag", "signum", "rmsprop", "adagrad"), 1)
_ARRAYS |= dict.fromkeys(("adam", "adadelta", "ftrl"), 2)
"""Arrays that the reference keeps by optimizer; 0 for other optimizers."""


class ReferenceWeight:
    """The reference value of one key under an optimizer, starting at zero.

    Args:
        optimizer: One of the store's optimizers.
        elements: Elements of the key.
    """

    def __init__(self, optimizer: str, elements: int) -> None:
        self.weight: Float64Array = np.zeros(elements)
        arrays = _ARRAYS.get(optimizer, 0)
        self._first: Float64Array = np.zeros(elements if arrays > 0 else 0)
        self._second: Float64Array = np.zeros(elements if arrays > 1 else 0)
        self._updates = 0
        self._next: Callable[[Float64Array], Float64Array] = getattr(self, f"_{optimizer}")

    def apply(self, gradient: FloatArray) -> Float64Array:
        """Apply the sum of one round; return the value after it, in float64."""
        self._updates += 1
        self.weight = self._next(np.asarray(gradient, np.float64))
        return self.weight

    def _none(self, gradient: Float64Array) -> Float64Array:
        return gradient.copy()

    def _sgd(self, gradient: Float64Array) -> Float64Array:
        return self.weight - gradient / 100

    def _momentum(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by Polyak's heavy-ball momentum, with the rate applied last."""
        self._first = 0.9 * self._first + gradient
        return self.weight - self._first / 100

    def _adam(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by Adam with bias-corrected means and epsilon."""
        decay1 = 0.9
        decay2 = 0.999
        self._first += (1 - decay1) * (gradient - self._first)
        self._second += (1 - decay2) * (gradient**2 - self._second)
        root_correction = math.sqrt(1 - decay2**self._updates)
        mean = self._first / (1 - decay1**self._updates)
        root: Float64Array = np.sqrt(self._second) / root_correction
        return self.weight - 0.001 * mean / (root + 1e-8 / root_correction)

    def _nag(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by Nesterov's momentum in torch's form, with the rate last."""
        self._first = 0.9 * self._first + gradient
        return self.weight - (gradient + 0.9 * self._first) / 100

    def _signum(self, gradient: Float64Array) -> Float64Array:
        self._first += (gradient - self._first) / 10
        return self.weight - np.sign(self._first) / 100

    def _rmsprop(self, gradient: Float64Array) -> Float64Array:
        self._first += (gradient**2 - self._first) / 10
        inverse: Float64Array = (self._first + 1e-8) ** -0.5
        return self.weight - gradient / 1000 * inverse

    def _adagrad(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by AdaGrad, from the root of the sum of squares."""
        self._first = np.hypot(self._first, gradient)
        root: Float64Array = np.hypot(self._first, math.sqrt(1e-7))
        return self.weight - gradient / (100 * root)

    def _adadelta(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by AdaDelta, from the root of the ratio of both means."""
        self._first += (gradient**2 - self._first) / 10
        step = gradient * np.sqrt((self._second + 1e-5) / (self._first + 1e-5))
        self._second += (step**2 - self._second) / 10
        return self.weight - step

    def _ftrl(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by FTRL, from the root of the sum of squares."""
        root = np.hypot(self._second, gradient)
        self._first += gradient - 10 * (root - self._second) * self.weight
        self._second = root
        beyond_lambda = np.abs(self._first) - 0.01
        weight = -np.copysign(beyond_lambda, self._first) / (10 + 10 * root)
        return np.where(beyond_lambda > 0, weight, 0.0)


Arrivals = Mapping[TaggedShard, Sequence[int]]
"""Workers in the order of arrival of their pushes, by shard of an asynchronous store."""


@dataclass(frozen=True, slots=True)
class _GroupGradient:
    """The gradient of a key that a group of ranks pushes together.

    Attributes:
        total: The sum of their gradients in float64.
        magnitude: The sum of the absolute values.
        float32_total: The float32 sum in rank order, which is compressed.
        terms: The number of ranks.
    """

    total: Float64Array
    magnitude: Float64Array
    float32_total: Float32Array
    terms: int


class _DeliveredPush(NamedTuple):
    """A piece of a push as the store receives it.

    Attributes:
        delivered: The values, after compression if there is one.
        magnitude: The sum of the absolute values of its terms.
        terms: The number of terms, each of which adds a rounding error.
    """

    delivered: Float64Array
    magnitude: Float64Array
    terms: int


class _Coder:
    """An independent gradient compression with its residual, for one sender."""

    def __init__(self, gc_type: str, threshold: float, elements: int) -> None:
        self._quantise = {"2bit": self._two_bits, "1bit": self._one_bit}[gc_type]
        self._threshold = np.float32(threshold)
        self._residual: Float32Array = np.zeros(elements, np.float32)

    def encode(self, gradient: Float32Array) -> Float64Array:
        self._residual = self._residual + gradient
        delivered = self._quantise(self._residual).astype(np.float32)
        self._residual = self._residual - delivered
        return delivered.astype(np.float64)

    def _two_bits(self, residual: Float32Array) -> Float32Array:
        reaches_threshold = np.abs(residual) >= self._threshold
        return np.where(reaches_threshold, np.copysign(self._threshold, residual), np.float32(0))

    def _one_bit(self, residual: Float32Array) -> Float32Array:
        return np.where(residual > self._threshold, np.float32(1), np.float32(-1))


class _Piece:
    """The expected value of a key, or of a shard of it, with its error bound."""

    def __init__(
        self, case: StoreCase, first: int, last: int, shard: TaggedShard | None, group_count: int
    ) -> None:
        self.part = slice(first, last)
        self.shard = shard
        elements = last - first
        self.replica = ReferenceWeight(case.optimizer, elements)
        self.bound = ErrorBound(case.optimizer, elements)
        self._coders = [
            _Coder(case.gc_type, case.threshold, elements)
            for _ in range(group_count)
            if case.compressed
        ]

    def apply_updates(
        self, gradients: Sequence[_GroupGradient], updates: Iterable[Sequence[int]]
    ) -> None:
        """Apply successive updates, each the sum of the pushes of some groups."""
        for groups in updates:
            total = np.zeros(self.part.stop - self.part.start)
            magnitude = np.zeros_like(total)
            terms = 0
            for group in groups:
                push = self._encode_push(group, gradients[group])
                total += push.delivered
                magnitude += push.magnitude
                terms += push.terms
            self.replica.apply(total)
            self.bound.apply(total, terms * UNIT * magnitude, self.replica.weight)

    def _encode_push(self, group: int, gradients: _GroupGradient) -> _DeliveredPush:
        if not self._coders:
            total = gradients.total[self.part]
            return _DeliveredPush(total, gradients.magnitude[self.part], gradients.terms)
        delivered = self._coders[group].encode(gradients.float32_total[self.part])
        return _DeliveredPush(delivered, np.abs(delivered), 1)


class KeyExpectation:
    """The expected value of one key by round, starting at zero.

    Args:
        case: The case.
        key: The key.
        gradients: The gradients that ranks push.
    """

    def __init__(self, case: StoreCase, key: int, gradients: Gradients) -> None:
        self._case = case
        self._key = key
        self._gradients = gradients
        self._groups = _list_groups(case)
        self._draw: int | None = None
        tagged_shards = case.tagged_shards[key] if case.tagged_shards else ()
        group_count = len(self._groups)
        self._pieces = [
            _Piece(case, shard.first, shard.last, shard, group_count) for shard in tagged_shards
        ] or [_Piece(case, 0, case.elements[key], None, group_count)]

    def advance(self, draw: int, rounds: int, arrivals: Arrivals) -> None:
        """Apply rounds that all pushed the same draw of gradients.

        Args:
            draw: The draw.
            rounds: The number of rounds.
            arrivals: The order of arrival of pushes, for an asynchronous store.
        """
        case = self._case
        stateless = case.optimizer == "none" and not case.compressed
        if stateless and draw == self._draw:
            return
        self._draw = draw
        gradients = [self._sum_gradients(ranks, draw) for ranks in self._groups]
        updates = [range(len(self._groups))] * (1 if stateless else rounds)
        for piece in self._pieces:
            if case.store.asynchronous:
                assert piece.shard is not None
                piece.apply_updates(gradients, ([worker] for worker in arrivals[piece.shard]))
            else:
                piece.apply_updates(gradients, updates)

    def weight_and_bound(self) -> Float64Array:
        """Return two rows: the key's expected value and its error bound."""
        weights = [piece.replica.weight for piece in self._pieces]
        bounds = [piece.bound.value for piece in self._pieces]
        return np.stack([np.concatenate(weights), np.concatenate(bounds)])

    def _sum_gradients(self, ranks: Sequence[int], draw: int) -> _GroupGradient:
        elements = self._case.elements[self._key]
        total = np.zeros(elements)
        magnitude = np.zeros(elements)
        float32_total: Float32Array = np.zeros(elements, np.float32)
        for rank in ranks:
            gradient = self._gradients.make_gradient(rank, self._key, draw)
            total += gradient
            magnitude += np.abs(gradient)
            float32_total += gradient
        return _GroupGradient(total, magnitude, float32_total, len(ranks))


def _list_groups(case: StoreCase) -> list[range]:
    """Return the groups of ranks that push together; one group if it does not matter."""
    roles = case.roles
    if not (case.compressed or case.store.asynchronous):
        return [roles.device_ranks]
    if case.store.dist:
        return [roles.list_worker_ranks(worker) for worker in range(roles.workers)]
    return [range(rank, rank + 1) for rank in roles.device_ranks]
