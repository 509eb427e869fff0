"""Reference of a key's value: independent optimizers in float64.

It shares neither code nor numbers with `spbench_workers.kvstore.optimizers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class Replica:
    """The reference value of one key, from zeros, under an optimizer.

    Args:
        optimizer: ``none``, ``sgd``, ``momentum`` or ``adam``.
        elements: Elements of the key.
    """

    def __init__(self, optimizer: str, elements: int) -> None:
        self.weight: Array = np.zeros(elements)
        self._first: Array = np.zeros(elements if optimizer in ("momentum", "adam") else 0)
        self._second: Array = np.zeros(elements if optimizer == "adam" else 0)
        self._count = 0
        self._next: Callable[[Array], Array] = getattr(self, f"_{optimizer}")

    def apply(self, gradient: npt.NDArray[np.floating]) -> Array:
        """Apply the sum of one round; return the value after it, in float64."""
        self._count += 1
        self.weight = self._next(np.asarray(gradient, np.float64))
        return self.weight

    def _none(self, gradient: Array) -> Array:
        return gradient.copy()

    def _sgd(self, gradient: Array) -> Array:
        return self.weight - gradient / 100

    def _momentum(self, gradient: Array) -> Array:
        """Return the weight by heavy-ball momentum in Polyak's form: the rate is applied last."""
        self._first = 0.9 * self._first + gradient
        return self.weight - self._first / 100

    def _adam(self, gradient: Array) -> Array:
        """Return the weight by Adam with bias-corrected means; epsilon is corrected as the root."""
        decay1, decay2 = 0.9, 0.999
        self._first += (1 - decay1) * (gradient - self._first)
        self._second += (1 - decay2) * (gradient**2 - self._second)
        missing = math.sqrt(1 - decay2**self._count)
        mean = self._first / (1 - decay1**self._count)
        root: Array = np.sqrt(self._second) / missing
        return self.weight - 0.001 * mean / (root + 1e-8 / missing)
