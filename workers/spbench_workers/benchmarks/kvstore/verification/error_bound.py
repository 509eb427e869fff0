"""Rounding error bounds of float32 values against a float64 reference, by element.

A sum of n numbers in any order is off by at most n u sum|x|, with u = 2^-24 (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, section 4.2). The bound follows this error and the rounding
of the optimizer through each update, to first order in u.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import Float64Array

UNIT = 2.0**-24
"""The unit round-off of float32."""

_ADAM_STEP = 0.016
"""Largest error of Adam's step: its longest step is 0.001 * 7.3, possibly with a wrong sign."""
_STATES = {"momentum": 2, "nag": 2, "signum": 2, "rmsprop": 2, "adagrad": 2}
_STATES |= {"adam": 4, "adadelta": 4, "ftrl": 5}
"""Arrays that the bound keeps by optimizer; 0 for other optimizers."""


class _RootBound(NamedTuple):
    """A root of squares, the bound of its error, and its smallest possible value."""

    root: Float64Array
    error: Float64Array
    min_root: Float64Array


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
        magnitude = np.abs(gradient)
        velocity[:] = 0.9 * velocity + 0.01 * magnitude
        velocity_error[:] = 0.9 * velocity_error + 0.01 * error + 4 * UNIT * velocity
        return velocity_error.astype(np.float64)

    def _nag(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        velocity_error = self._momentum(gradient, error)
        step_magnitude = 0.9 * self._states[0] + 0.01 * np.abs(gradient)
        return 0.9 * velocity_error + 0.01 * error + 4 * UNIT * step_magnitude

    def _signum(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        """Return the bound of a step: two lengths where the sign of the mean is unsure."""
        mean, mean_error = self._states
        mean_error[:] = 0.9 * mean_error + 0.1 * error
        mean_error += 4 * UNIT * (0.9 * np.abs(mean) + 0.1 * np.abs(gradient))
        mean[:] = 0.9 * mean + 0.1 * gradient
        # The mean is stored in float32, which adds an error of this size.
        unsure = np.abs(mean) < mean_error + UNIT * np.abs(mean)
        return np.where(unsure, 0.02, 0.01 * UNIT * (mean_error > 0))

    def _rmsprop(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        square, square_error = self._states
        square[:] = 0.9 * square + 0.1 * gradient**2
        square_error[:] = 0.9 * square_error + 0.1 * error**2
        return 0.001 * self._over_root(gradient, error, 1e-8)

    def _adagrad(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        square, square_error = self._states
        square += gradient**2
        square_error += error**2
        return 0.01 * self._over_root(gradient, error, 1e-7)

    def _over_root(
        self, gradient: Float64Array, error: Float64Array, epsilon: float
    ) -> Float64Array:
        """Return the bound of a gradient over the root of the mean, or sum, of squares."""
        root, root_error, min_root = self._bound_root(epsilon)
        magnitude = np.abs(gradient)
        ratio = magnitude / root
        bound: Float64Array = (error + ratio * root_error) / min_root + 6 * UNIT * ratio
        return bound

    def _bound_root(self, epsilon: float, first: int = 0) -> _RootBound:
        """Return the root of the squares in the states from ``first`` on, plus epsilon.

        By the triangle inequality, the error of a root of squares is at most the root of squared
        errors.
        """
        square, square_error = self._states[first : first + 2]
        root = np.sqrt(square + epsilon, dtype=np.float64)
        root_error = np.sqrt(square_error, dtype=np.float64) + (self._updates / 2 + 4) * UNIT * root
        min_root = np.maximum(root - root_error, math.sqrt(epsilon))
        return _RootBound(root, root_error, min_root)

    def _adadelta(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        square, square_error, steps, steps_error = self._states
        square[:] = 0.9 * square + 0.1 * gradient**2
        square_error[:] = 0.9 * square_error + 0.1 * error**2
        root, root_error, min_root = self._bound_root(1e-5)
        length, length_error, _ = self._bound_root(1e-5, first=2)
        magnitude = np.abs(gradient)
        step = length / root * magnitude
        bound: Float64Array = (
            length_error * (magnitude + error) + length * error + step * root_error
        ) / min_root
        bound += 8 * UNIT * step
        steps[:] = 0.9 * steps + 0.1 * step**2
        steps_error[:] = 0.9 * steps_error + 0.1 * bound**2
        return bound

    def _ftrl(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        """Return the change of the bound; each update computes the weight from the sums."""
        square, square_error, leader, leader_error, weight_before = self._states
        root_before, root_before_error, _ = self._bound_root(0.0)
        square += gradient**2
        square_error += error**2
        root, root_error, _ = self._bound_root(0.0)
        rise = 10 * (root - root_before)
        rise_error = 10 * (root_error + root_before_error)
        magnitude = np.abs(gradient)
        weight = weight_before.astype(np.float64)
        leader += magnitude + rise * weight
        leader_error += error + (rise + rise_error) * self.value + rise_error * weight
        leader_error += 4 * UNIT * leader
        weight_before[:] = np.abs(self._weight)
        # The weight follows the sum beyond lambda and is 0 within, so it never changes faster.
        bound: Float64Array = (leader_error + 0.01 * UNIT * (leader > 0)) / (
            10 * (1 + root - root_error)
        )
        bound += weight_before * (root_error / (1 + root) + 4 * UNIT)
        return bound - self.value

    def _adam(self, gradient: Float64Array, error: Float64Array) -> Float64Array:
        """Return the bound of Adam's step from both means' errors and its rounding."""
        magnitude = np.abs(gradient)
        mean, mean_error, square, square_error = self._states
        mean[:] = 0.9 * mean + 0.1 * magnitude
        mean_error[:] = 0.9 * mean_error + 0.1 * error + 4 * UNIT * mean
        square[:] = 0.999 * square + 0.001 * magnitude**2
        # By the triangle inequality in the weighted root mean square.
        square_error[:] = 0.999 * square_error + 0.001 * error**2
        root = np.sqrt(square, dtype=np.float64)
        root_error = np.sqrt(square_error, dtype=np.float64) + (2 * self._updates + 4) * UNIT * root
        rate = 0.001 * np.sqrt(1 - 0.999**self._updates) / (1 - 0.9**self._updates)
        min_root = np.maximum(root - root_error, 0.0) + 1e-8
        ratio = mean / (root + 1e-8)
        step: Float64Array = rate * (
            (mean_error + ratio * root_error) / min_root + 6 * UNIT * ratio
        )
        return np.minimum(step, _ADAM_STEP, out=step)
