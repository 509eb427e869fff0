"""Optimizers of a store by name, and those without adaptive steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.optimizers.adaptive import (
    AdaDelta,
    AdaGrad,
    Adam,
    Ftrl,
    RmsProp,
)
from spbench_workers.benchmarks.kvstore.optimizers.blocks import (
    LEARNING_RATE,
    MOMENTUM,
    BlockwiseOptimizer,
    StoreOptimizer,
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
        _update_velocity(velocity, gradient, step)
        np.add(weight, velocity, out=weight)


def _update_velocity(velocity: Float32Array, gradient: Float32Array, step: Float32Array) -> None:
    """Set ``velocity`` to ``momentum * m - rate * g``, and ``step`` to ``rate * g``."""
    np.multiply(velocity, MOMENTUM, out=velocity)
    np.multiply(gradient, LEARNING_RATE, out=step)
    np.subtract(velocity, step, out=velocity)


class Nag(BlockwiseOptimizer):
    """Nesterov's momentum.

    ``m = momentum * m - rate * g`` and ``w += momentum * m - rate * g``.

    The default momentum of MXNet is 0, which is plain descent. Here it is that of `Momentum`.
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
        _update_velocity(velocity, gradient, step)
        np.subtract(weight, step, out=weight)
        np.multiply(velocity, MOMENTUM, out=step)
        np.add(weight, step, out=weight)


class Signum(BlockwiseOptimizer):
    """Steps of constant length along the sign of the mean: ``w -= rate * sign(m)``."""

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


OPTIMIZERS: dict[str, Callable[[int], StoreOptimizer]] = {
    "none": Overwrite,
    "sgd": Sgd,
    "momentum": Momentum,
    "adam": Adam,
    "rmsprop": RmsProp,
    "adagrad": AdaGrad,
    "adadelta": AdaDelta,
    "nag": Nag,
    "ftrl": Ftrl,
    "signum": Signum,
}
"""Constructors by name. With ``none``, the pushed sum replaces the value."""


def create_optimizer(name: str, elements: int) -> StoreOptimizer:
    """Return an optimizer for a key or shard of ``elements``, with zero state.

    Raises:
        KeyError: The name is not in OPTIMIZERS.
    """
    return OPTIMIZERS[name](elements)
