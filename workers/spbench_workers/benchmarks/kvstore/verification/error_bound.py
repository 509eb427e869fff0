"""Rounding error bounds of values in float32 against their reference in float64, by element.

A sum of n numbers in any order is off by at most n u sum|x|, with u = 2^-24 (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, section 4.2). What an optimizer makes of that, and of its
own rounding, is followed update by update, to first order in u.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import Float64Array

UNIT = 2.0**-24
"""The unit round-off of float32."""

_ADAM_STEP = 0.016
"""Adam's longest step is 0.001 * 7.3; a wrong one may point the other way."""
_STATES = {"momentum": 2, "nag": 2, "signum": 2, "rmsprop": 2, "adagrad": 2}
_STATES |= {"adam": 4, "adadelta": 4, "ftrl": 5}
"""Arrays that the bound of an optimizer keeps; others keep none."""


class ErrorBound:
    """The error bound of one key's value, which starts at zeros.

    Args:
        optimizer: One of the store's optimizers.
        elements: Elements of the key.
    """

    def __init__(self, optimizer: str, elements: int) -> None:
        self.value: Float64Array = np.zeros(elements)
        states = _STATES.get(optimizer, 0)
        # Bounds need few digits: float32 is enough, and half of the memory.
        self._states = [np.zeros(elements, np.float32) for _ in range(states)]
        self._weight = self.value
        self._updates = 0
        self._next: Callable[[Float64Array, Float64Array], Float64Array] | None
        self._next = None if optimizer == "none" else getattr(self, f"_{optimizer}")

    def apply(self, gradient: Float64Array, off: Float64Array, weight: Float64Array) -> None:
        """Update the bound for one update of the value.

        Args:
            gradient: The gradient that the reference applied.
            off: The error bound of that gradient; kept, and not changed.
            weight: The reference's value after it.
        """
        self._updates += 1
        if self._next is None:
            self.value = off
            return
        self._weight = weight
        self.value += self._next(gradient, off)
        self.value += UNIT * np.abs(weight)

    def _sgd(self, gradient: Float64Array, off: Float64Array) -> Float64Array:
        return 0.01 * (off + 3 * UNIT * np.abs(gradient))

    def _momentum(self, gradient: Float64Array, off: Float64Array) -> Float64Array:
        velocity, wrong = self._states
        size = np.abs(gradient)
        velocity[:] = 0.9 * velocity + 0.01 * size
        wrong[:] = 0.9 * wrong + 0.01 * off + 4 * UNIT * velocity
        return wrong.astype(np.float64)

    def _nag(self, gradient: Float64Array, off: Float64Array) -> Float64Array:
        wrong = self._momentum(gradient, off)
        longest = 0.9 * self._states[0] + 0.01 * np.abs(gradient)
        return 0.9 * wrong + 0.01 * off + 4 * UNIT * longest

    def _signum(self, gradient: Float64Array, off: Float64Array) -> Float64Array:
        """Return the bound of a step: none where the mean's sign is sure, and else both lengths."""
        mean, mean_off = self._states
        mean_off[:] = 0.9 * mean_off + 0.1 * off
        mean_off += 4 * UNIT * (0.9 * np.abs(mean) + 0.1 * np.abs(gradient))
        mean[:] = 0.9 * mean + 0.1 * gradient
        # Kept in few digits, the mean itself is off by as much again.
        unsure = np.abs(mean) < mean_off + UNIT * np.abs(mean)
        return np.where(unsure, 0.02, 0.01 * UNIT * (mean_off > 0))

    def _rmsprop(self, gradient: Float64Array, off: Float64Array) -> Float64Array:
        square, square_off = self._states
        square[:] = 0.9 * square + 0.1 * gradient**2
        square_off[:] = 0.9 * square_off + 0.1 * off**2
        return 0.001 * self._over_root(gradient, off, 1e-8)

    def _adagrad(self, gradient: Float64Array, off: Float64Array) -> Float64Array:
        square, square_off = self._states
        square += gradient**2
        square_off += off**2
        return 0.01 * self._over_root(gradient, off, 1e-7)

    def _over_root(self, gradient: Float64Array, off: Float64Array, epsilon: float) -> Float64Array:
        """Return the bound of a gradient over the root of the mean, or sum, of squares."""
        root, root_off, least = self._root(epsilon)
        size = np.abs(gradient)
        ratio = size / root
        bound: Float64Array = (off + ratio * root_off) / least + 6 * UNIT * ratio
        return bound

    def _root(
        self, epsilon: float, first: int = 0
    ) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Return the root of squares and epsilon, its bound, and the least that it can be.

        By the triangle inequality, errors of the squares' roots are those of a root of squares.
        """
        square, square_off = self._states[first : first + 2]
        root = np.sqrt(square + epsilon, dtype=np.float64)
        root_off = np.sqrt(square_off, dtype=np.float64) + (self._updates / 2 + 4) * UNIT * root
        return root, root_off, np.maximum(root - root_off, math.sqrt(epsilon))

    def _adadelta(self, gradient: Float64Array, off: Float64Array) -> Float64Array:
        square, square_off, steps, steps_off = self._states
        square[:] = 0.9 * square + 0.1 * gradient**2
        square_off[:] = 0.9 * square_off + 0.1 * off**2
        root, root_off, least = self._root(1e-5)
        length, length_off, _ = self._root(1e-5, first=2)
        size = np.abs(gradient)
        step = length / root * size
        bound: Float64Array = (length_off * (size + off) + length * off + step * root_off) / least
        bound += 8 * UNIT * step
        steps[:] = 0.9 * steps + 0.1 * step**2
        steps_off[:] = 0.9 * steps_off + 0.1 * bound**2
        return bound

    def _ftrl(self, gradient: Float64Array, off: Float64Array) -> Float64Array:
        """Return the change of the bound: the weight is made anew from the sums in each update."""
        square, square_off, leader, leader_off, before = self._states
        shorter, shorter_off, _ = self._root(0.0)
        square += gradient**2
        square_off += off**2
        root, root_off, _ = self._root(0.0)
        rise = 10 * (root - shorter)
        rise_off = 10 * (root_off + shorter_off)
        size = np.abs(gradient)
        weight = before.astype(np.float64)
        leader += size + rise * weight
        leader_off += off + (rise + rise_off) * self.value + rise_off * weight
        leader_off += 4 * UNIT * leader
        before[:] = np.abs(self._weight)
        # Beyond lambda the weight follows the sum, within it is 0: never faster than the sum.
        bound: Float64Array = (leader_off + 0.01 * UNIT * (leader > 0)) / (
            10 * (1 + root - root_off)
        )
        bound += before * (root_off / (1 + root) + 4 * UNIT)
        return bound - self.value

    def _adam(self, gradient: Float64Array, off: Float64Array) -> Float64Array:
        """Return the bound of Adam's step, by the errors of both means and the step's rounding."""
        size = np.abs(gradient)
        mean, mean_off, square, square_off = self._states
        mean[:] = 0.9 * mean + 0.1 * size
        mean_off[:] = 0.9 * mean_off + 0.1 * off + 4 * UNIT * mean
        square[:] = 0.999 * square + 0.001 * size**2
        # By the triangle inequality in the weighted root mean square.
        square_off[:] = 0.999 * square_off + 0.001 * off**2
        root = np.sqrt(square, dtype=np.float64)
        root_off = np.sqrt(square_off, dtype=np.float64) + (2 * self._updates + 4) * UNIT * root
        rate = 0.001 * np.sqrt(1 - 0.999**self._updates) / (1 - 0.9**self._updates)
        least = np.maximum(root - root_off, 0.0) + 1e-8
        ratio = mean / (root + 1e-8)
        step: Float64Array = rate * ((mean_off + ratio * root_off) / least + 6 * UNIT * ratio)
        return np.minimum(step, _ADAM_STEP, out=step)
