"""Reference of a key's value: independent optimizers in float64.

It shares neither code nor numbers with the package `optimizers`, and takes other ways to the same
values where there are any.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import Float64Array, FloatArray

_ARRAYS = dict.fromkeys(("momentum", "nag", "signum", "rmsprop", "adagrad"), 1)
_ARRAYS |= dict.fromkeys(("adam", "adadelta", "ftrl"), 2)
"""Arrays that an optimizer keeps; others keep none."""


class Replica:
    """The reference value of one key, from zeros, under an optimizer.

    Args:
        optimizer: One of the store's optimizers.
        elements: Elements of the key.
    """

    def __init__(self, optimizer: str, elements: int) -> None:
        self.weight: Float64Array = np.zeros(elements)
        kept = _ARRAYS.get(optimizer, 0)
        self._first: Float64Array = np.zeros(elements if kept > 0 else 0)
        self._second: Float64Array = np.zeros(elements if kept > 1 else 0)
        self._count = 0
        self._next: Callable[[Float64Array], Float64Array] = getattr(self, f"_{optimizer}")

    def apply(self, gradient: FloatArray) -> Float64Array:
        """Apply the sum of one round; return the value after it, in float64."""
        self._count += 1
        self.weight = self._next(np.asarray(gradient, np.float64))
        return self.weight

    def _none(self, gradient: Float64Array) -> Float64Array:
        return gradient.copy()

    def _sgd(self, gradient: Float64Array) -> Float64Array:
        return self.weight - gradient / 100

    def _momentum(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by heavy-ball momentum in Polyak's form: the rate is applied last."""
        self._first = 0.9 * self._first + gradient
        return self.weight - self._first / 100

    def _adam(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by Adam with bias-corrected means; epsilon is corrected as the root."""
        decay1 = 0.9
        decay2 = 0.999
        self._first += (1 - decay1) * (gradient - self._first)
        self._second += (1 - decay2) * (gradient**2 - self._second)
        missing = math.sqrt(1 - decay2**self._count)
        mean = self._first / (1 - decay1**self._count)
        root: Float64Array = np.sqrt(self._second) / missing
        return self.weight - 0.001 * mean / (root + 1e-8 / missing)

    def _nag(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by Nesterov's momentum as torch has it: the rate is applied last."""
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
        """Return the weight by AdaGrad; what is kept is the root of the sum of squares."""
        self._first = np.hypot(self._first, gradient)
        root: Float64Array = np.hypot(self._first, math.sqrt(1e-7))
        return self.weight - gradient / (100 * root)

    def _adadelta(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by AdaDelta; the ratio of both means is taken before its root."""
        self._first += (gradient**2 - self._first) / 10
        step = gradient * np.sqrt((self._second + 1e-5) / (self._first + 1e-5))
        self._second += (step**2 - self._second) / 10
        return self.weight - step

    def _ftrl(self, gradient: Float64Array) -> Float64Array:
        """Return the weight by FTRL; what is kept of the squares is the root of their sum."""
        root = np.hypot(self._second, gradient)
        self._first += gradient - 10 * (root - self._second) * self.weight
        self._second = root
        beyond = np.abs(self._first) - 0.01
        weight = -np.copysign(beyond, self._first) / (10 + 10 * root)
        return np.where(beyond > 0, weight, 0.0)
