"""Optimizers that adapt their steps to the size of earlier gradients, by element."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import Float32Array
from spbench_workers.benchmarks.kvstore.optimizers.blocks import (
    LEARNING_RATE,
    BlockwiseOptimizer,
    update_mean,
)

ADAM_RATE = 0.001
BETA1 = 0.9
BETA2 = 0.999
EPSILON = 1e-8

RMSPROP_RATE = 0.001
RMSPROP_DECAY = 0.9
RMSPROP_EPSILON = 1e-8
ADAGRAD_EPSILON = 1e-7
ADADELTA_DECAY = 0.9
ADADELTA_EPSILON = 1e-5
FTRL_RATE = 0.1
FTRL_BETA = 1.0
FTRL_LAMBDA = 0.01


class Adam(BlockwiseOptimizer):
    """Adam in MXNet's form, with the correction of both means in the rate.

    ``rate_t = rate * sqrt(1 - beta2^t) / (1 - beta1^t)``, with t the updates of this key, and
    ``w -= rate_t * m / (sqrt(v) + epsilon)`` (Kingma and Ba, 2015, end of section 2).
    """

    states = 2

    def _update(
        self,
        weight: Float32Array,
        gradient: Float32Array,
        states: Sequence[Float32Array],
        scratch: Sequence[Float32Array],
    ) -> None:
        [mean, square] = states
        [step] = scratch
        rate = ADAM_RATE * math.sqrt(1 - BETA2**self._updates) / (1 - BETA1**self._updates)
        update_mean(mean, BETA1, gradient, step)
        _decay_square(square, BETA2, gradient, step)
        np.sqrt(square, out=step)
        np.add(step, EPSILON, out=step)
        np.divide(mean, step, out=step)
        np.multiply(step, rate, out=step)
        np.subtract(weight, step, out=weight)


class RmsProp(BlockwiseOptimizer):
    """RMSProp, ``n`` the mean of squares: ``w -= rate * g / sqrt(n + epsilon)``."""

    states = 1

    def _update(
        self,
        weight: Float32Array,
        gradient: Float32Array,
        states: Sequence[Float32Array],
        scratch: Sequence[Float32Array],
    ) -> None:
        [square] = states
        [step] = scratch
        _decay_square(square, RMSPROP_DECAY, gradient, step)
        _root(square, RMSPROP_EPSILON, step)
        np.divide(gradient, step, out=step)
        np.multiply(step, RMSPROP_RATE, out=step)
        np.subtract(weight, step, out=weight)


class AdaGrad(BlockwiseOptimizer):
    """AdaGrad, ``h`` the sum of squares: ``w -= rate * g / sqrt(h + epsilon)``."""

    states = 1

    def _update(
        self,
        weight: Float32Array,
        gradient: Float32Array,
        states: Sequence[Float32Array],
        scratch: Sequence[Float32Array],
    ) -> None:
        [history] = states
        [step] = scratch
        np.multiply(gradient, gradient, out=step)
        np.add(history, step, out=history)
        _root(history, ADAGRAD_EPSILON, step)
        np.divide(gradient, step, out=step)
        np.multiply(step, LEARNING_RATE, out=step)
        np.subtract(weight, step, out=weight)


class AdaDelta(BlockwiseOptimizer):
    """AdaDelta: steps scaled by the mean of earlier steps over that of gradients.

    ``d = sqrt(D + epsilon) / sqrt(G + epsilon) * g`` and ``w -= d``, with G and D the means of the
    squares of gradients and of steps; there is no rate.
    """

    states = 2
    scratches = 2

    def _update(
        self,
        weight: Float32Array,
        gradient: Float32Array,
        states: Sequence[Float32Array],
        scratch: Sequence[Float32Array],
    ) -> None:
        [square, steps] = states
        [step, root] = scratch
        _decay_square(square, ADADELTA_DECAY, gradient, step)
        _root(steps, ADADELTA_EPSILON, step)
        _root(square, ADADELTA_EPSILON, root)
        np.divide(step, root, out=step)
        np.multiply(step, gradient, out=step)
        np.subtract(weight, step, out=weight)
        _decay_square(steps, ADADELTA_DECAY, step, root)


class Ftrl(BlockwiseOptimizer):
    """Follow the regularised leader: weights stay 0 until gradients exceed lambda.

    ``z += g - (sqrt(n + g^2) - sqrt(n)) / rate * w`` and ``n += g^2``, then
    ``w = (sign(z) * lambda - z) / ((beta + sqrt(n)) / rate)``, or 0 where ``|z| <= lambda``
    (McMahan et al., 2013).
    """

    states = 2
    scratches = 2

    def _update(
        self,
        weight: Float32Array,
        gradient: Float32Array,
        states: Sequence[Float32Array],
        scratch: Sequence[Float32Array],
    ) -> None:
        [leader, square] = states
        [step, root] = scratch
        np.sqrt(square, out=step)
        np.multiply(gradient, gradient, out=root)
        np.add(square, root, out=square)
        np.sqrt(square, out=root)
        np.subtract(root, step, out=step)
        np.multiply(step, 1 / FTRL_RATE, out=step)
        np.multiply(step, weight, out=step)
        np.subtract(gradient, step, out=step)
        np.add(leader, step, out=leader)
        np.clip(leader, -FTRL_LAMBDA, FTRL_LAMBDA, out=step)
        np.subtract(step, leader, out=step)
        np.add(root, FTRL_BETA, out=root)
        np.multiply(root, 1 / FTRL_RATE, out=root)
        np.divide(step, root, out=weight)


def _decay_square(
    mean: Float32Array, decay: float, value: Float32Array, scratch: Float32Array
) -> None:
    """Update a running mean with the square of a value."""
    np.multiply(value, value, out=scratch)
    np.multiply(mean, decay, out=mean)
    np.multiply(scratch, 1 - decay, out=scratch)
    np.add(mean, scratch, out=mean)


def _root(square: Float32Array, epsilon: float, into: Float32Array) -> None:
    """Write ``sqrt(square + epsilon)``."""
    np.add(square, epsilon, out=into)
    np.sqrt(into, out=into)
