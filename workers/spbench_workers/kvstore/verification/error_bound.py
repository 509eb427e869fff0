"""Rounding error bounds of values in float32 against their reference in float64, by element.

A sum of n numbers in any order is off by at most n u sum|x|, with u = 2^-24 (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, section 4.2). What an optimizer makes of that, and of its
own rounding, is followed update by update, to first order in u.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

UNIT = 2.0**-24
"""The unit round-off of float32."""

_ADAM_STEP = 0.016
"""Adam's longest step is 0.001 * 7.3; a wrong one may point the other way."""


class ErrorBound:
    """The error bound of one key's value, which starts at zeros.

    Args:
        optimizer: ``none``, ``sgd``, ``momentum`` or ``adam``.
        elements: Elements of the key.
    """

    def __init__(self, optimizer: str, elements: int) -> None:
        self.value: Array = np.zeros(elements)
        states = {"momentum": 2, "adam": 4}.get(optimizer, 0)
        # Bounds need few digits: float32 is enough, and half of the memory.
        self._states = [np.zeros(elements, np.float32) for _ in range(states)]
        self._updates = 0
        self._next: Callable[[Array, Array], Array] | None
        self._next = None if optimizer == "none" else getattr(self, f"_{optimizer}")

    def apply(self, gradient: Array, off: Array, weight: Array) -> None:
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
        self.value += self._next(np.abs(gradient), off)
        self.value += UNIT * np.abs(weight)

    def _sgd(self, size: Array, off: Array) -> Array:
        return 0.01 * (off + 3 * UNIT * size)

    def _momentum(self, size: Array, off: Array) -> Array:
        velocity, wrong = self._states
        velocity[:] = 0.9 * velocity + 0.01 * size
        wrong[:] = 0.9 * wrong + 0.01 * off + 4 * UNIT * velocity
        return wrong.astype(np.float64)

    def _adam(self, size: Array, off: Array) -> Array:
        """Return the bound of Adam's step, by the errors of both means and the step's rounding."""
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
        step: Array = rate * ((mean_off + ratio * root_off) / least + 6 * UNIT * ratio)
        return np.minimum(step, _ADAM_STEP, out=step)
