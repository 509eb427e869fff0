"""Rounding error bounds of float32 values against a float64 reference, by element.

A sum of n numbers in any order is off by at most n u sum|x|, with u = 2^-24 (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, section 4.2). The bound follows this error and the rounding
of the optimizer through each update, to first order in u.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import Float64Array

UNIT = 2.0**-24
"""The unit round-off of float32."""

_ADAM_STEP = 0.016
"""Largest error of Adam's step: its longest step is 0.001 * 7.3, possibly with a wrong sign."""
_STATES = {"momentum": 2, "nag": 2, "signum": 2, "rmsprop": 2, "adagrad": 2}
_STATES |= {"adam": 4, "adadelta": 4, "ftrl": 5}
"""Arrays that the bound keeps by optimizer; 0 for other optimizers."""


class ErrorBound:
    """The error bound of one key's value, which starts at zero.

    Args:
        optimizer: One of the store's optimizers.
        elements: Elements of the key.
    """

    def __init__(self, optimizer: str, elements: int) -> None:
        self.value: Float64Array = np.zeros(elements)
        states = _STATES.get(optimizer, 0)
        # Bounds need few digits, so float32 is enough and takes half of the memory.
        self._states = [np.zeros(elements, np.float32) for _ in range(states)]
        self._weight = self.value
        self._updates = 0
        self._next: Callable[[Float64Array, Float64Array], Float64Array] | None
        self._next = None if optimizer == "none" else getattr(self, f"_{optimizer}")

    def apply(self, gradient: Float64Array, error: Float64Array, weight: Float64Array) -> None:
        """Update the bound for one update of the value.

        Args:
            gradient: The gradient that the reference applied.
            error: The error bound of that gradient; it may be stored, but is not changed.
            weight: The reference's value after the update.
        """
        self._updates += 1
        if self._next is None:
            self.value = error
            return
        self._weight = weight
        self.value += self._next(gradient, error)
        self.value += UNIT * np.abs(weight)

    def _sgd(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        return 0.01 * (error + 3 * UNIT * np.abs(gradient))

    def _momentum(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        velocity, velocity_error = self._states
        size = np.abs(gradient)
        velocity[:] = 0.9 * velocity + 0.01 * size
        velocity_error[:] = 0.9 * velocity_error + 0.01 * error + 4 * UNIT * velocity
        return velocity_error.astype(np.float64)

    def _nag(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        velocity_error = self._momentum(gradient, error)
        longest = 0.9 * self._states[0] + 0.01 * np.abs(gradient)
        return 0.9 * velocity_error + 0.01 * error + 4 * UNIT * longest

    def _signum(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        """Return the bound of a step: two lengths where the sign of the mean is unsure."""
        mean, mean_off = self._states
        mean_off[:] = 0.9 * mean_off + 0.1 * error
        mean_off += 4 * UNIT * (0.9 * np.abs(mean) + 0.1 * np.abs(gradient))
        mean[:] = 0.9 * mean + 0.1 * gradient
        # The mean is stored in float32, which adds an error of this size.
        unsure = np.abs(mean) < mean_off + UNIT * np.abs(mean)
        return np.where(unsure, 0.02, 0.01 * UNIT * (mean_off > 0))

    def _rmsprop(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        square, square_off = self._states
        square[:] = 0.9 * square + 0.1 * gradient**2
        square_off[:] = 0.9 * square_off + 0.1 * error**2
        return 0.001 * self._over_root(gradient, error, 1e-8)

    def _adagrad(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        square, square_off = self._states
        square += gradient**2
        square_off += error**2
        return 0.01 * self._over_root(gradient, error, 1e-7)

    def _over_root(
        self, gradient: Float64Array, error: Float64Array, epsilon: float
    ) -> Float64Array:
        """Return the bound of a gradient over the root of the mean, or sum, of squares."""
        root, root_off, min_root = self._root(epsilon)
        size = np.abs(gradient)
        ratio = size / root
        bound: Float64Array = (error + ratio * root_off) / min_root + 6 * UNIT * ratio
        return bound

    def _root(
        self, epsilon: float, first: int = 0
    ) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Return the root of squares plus epsilon, its error bound, and its minimum.

        By the triangle inequality, the error of a root of squares is at most the root of squared
        errors.
        """
        square, square_off = self._states[first : first + 2]
        root = np.sqrt(square + epsilon, dtype=np.float64)
        root_off = np.sqrt(square_off, dtype=np.float64) + (self._updates / 2 + 4) * UNIT * root
        return root, root_off, np.maximum(root - root_off, math.sqrt(epsilon))

    def _adadelta(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        square, square_off, steps, steps_off = self._states
        square[:] = 0.9 * square + 0.1 * gradient**2
        square_off[:] = 0.9 * square_off + 0.1 * error**2
        root, root_off, min_root = self._root(1e-5)
        length, length_off, _ = self._root(1e-5, first=2)
        size = np.abs(gradient)
        step = length / root * size
        bound: Float64Array = (
            length_off * (size + error) + length * error + step * root_off
        ) / min_root
        bound += 8 * UNIT * step
        steps[:] = 0.9 * steps + 0.1 * step**2
        steps_off[:] = 0.9 * steps_off + 0.1 * bound**2
        return bound

    def _ftrl(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        """Return the change of the bound; each update computes the weight from the sums."""
        square, square_off, leader, leader_off, before = self._states
        shorter, shorter_off, _ = self._root(0.0)
        square += gradient**2
        square_off += error**2
        root, root_off, _ = self._root(0.0)
        rise = 10 * (root - shorter)
        rise_off = 10 * (root_off + shorter_off)
        size = np.abs(gradient)
        weight = before.astype(np.float64)
        leader += size + rise * weight
        leader_off += error + (rise + rise_off) * self.value + rise_off * weight
        leader_off += 4 * UNIT * leader
        before[:] = np.abs(self._weight)
        # The weight follows the sum beyond lambda and is 0 within, so it never changes faster.
        bound: Float64Array = (leader_off + 0.01 * UNIT * (leader > 0)) / (
            10 * (1 + root - root_off)
        )
        bound += before * (root_off / (1 + root) + 4 * UNIT)
        return bound - self.value

    def _adam(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        """Return the bound of Adam's step from both means' errors and its rounding."""
        size = np.abs(gradient)
        mean, mean_off, square, square_off = self._states
        mean[:] = 0.9 * mean + 0.1 * size
        mean_off[:] = 0.9 * mean_off + 0.1 * error + 4 * UNIT * mean
        square[:] = 0.999 * square + 0.001 * size**2
        # By the triangle inequality in the weighted root mean square.
        square_off[:] = 0.999 * square_off + 0.001 * error**2
        root = np.sqrt(square, dtype=np.float64)
        root_off = np.sqrt(square_off, dtype=np.float64) + (2 * self._updates + 4) * UNIT * root
        rate = 0.001 * np.sqrt(1 - 0.999**self._updates) / (1 - 0.9**self._updates)
        min_root = np.maximum(root - root_off, 0.0) + 1e-8
        ratio = mean / (root + 1e-8)
        step: Float64Array = rate * ((mean_off + ratio * root_off) / min_root + 6 * UNIT * ratio)
        return np.minimum(step, _ADAM_STEP, out=step)
