"""Optimizers that take gradients as they are: descent, with momentum, and by signs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.optimizers.blocks import (
    LEARNING_RATE,
    MOMENTUM,
    BlockwiseOptimizer,
    update_mean,
)


class Overwrite:
    """No optimizer: the weight becomes the gradient."""

    def __init__(self, elements: int) -> None:
        self.elements = elements

    def update(self, weight: Float32Array, gradient: Float32Array) -> None:
        np.copyto(weight, gradient)


class Sgd(BlockwiseOptimizer):
    """Stochastic gradient descent, ``w -= rate * g``."""

    def _update(
        self,
        weight: Float32Array,
        gradient: Float32Array,
        states: Sequence[Float32Array],
        scratch: Sequence[Float32Array],
    ) -> None:
        [step] = scratch
        np.multiply(gradient, LEARNING_RATE, out=step)
        np.subtract(weight, step, out=weight)


class Momentum(BlockwiseOptimizer):
    """Gradient descent with momentum, ``m = momentum * m - rate * g`` and ``w += m``."""

    states = 1

    def _update(
        self,
        weight: Float32Array,
        gradient: Float32Array,
        states: Sequence[Float32Array],
        scratch: Sequence[Float32Array],
    ) -> None:
        [velocity] = states
        [step] = scratch
        _fall(velocity, gradient, step)
        np.add(weight, velocity, out=weight)


def _fall(velocity: Float32Array, gradient: Float32Array, step: Float32Array) -> None:
    """Change a velocity, ``m = momentum * m - rate * g``, and leave ``rate * g`` in ``step``."""
    np.multiply(velocity, MOMENTUM, out=velocity)
    np.multiply(gradient, LEARNING_RATE, out=step)
    np.subtract(velocity, step, out=velocity)


class Nag(BlockwiseOptimizer):
    """Nesterov's momentum, ``m = momentum * m - rate * g`` and ``w += momentum * m - rate * g``.

    MXNet's momentum is 0 unless given, which is plain descent; here it is that of `Momentum`.
    """

    states = 1

    def _update(
        self,
        weight: Float32Array,
        gradient: Float32Array,
        states: Sequence[Float32Array],
        scratch: Sequence[Float32Array],
    ) -> None:
        [velocity] = states
        [step] = scratch
        _fall(velocity, gradient, step)
        np.subtract(weight, step, out=weight)
        np.multiply(velocity, MOMENTUM, out=step)
        np.add(weight, step, out=weight)


class Signum(BlockwiseOptimizer):
    """Steps of one length in the direction of the gradients' mean, ``w -= rate * sign(m)``."""

    states = 1

    def _update(
        self,
        weight: Float32Array,
        gradient: Float32Array,
        states: Sequence[Float32Array],
        scratch: Sequence[Float32Array],
    ) -> None:
        [mean] = states
        [step] = scratch
        update_mean(mean, MOMENTUM, gradient, step)
        np.sign(mean, out=step)
        np.multiply(step, LEARNING_RATE, out=step)
        np.subtract(weight, step, out=weight)
