"""Arrays of key-value stores: their types, and random gradients.

Gradients depend only on seeds, so every rank can make those of all others without communication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
FloatArray = npt.NDArray[np.floating]
"""An array of any floating-point type."""


SeedFor = Callable[..., int]
"""Returns a seed for its arguments, the same on every rank."""

TIMED_DRAW = 0
"""The draw of all timed rounds, which push equal gradients like measure.py; others count from 1."""


class Gradients:
    """Uniform random gradients from -1 to 1 for each rank, key and draw.

    Args:
        seed_for: Returns the seeds.
        elements: Elements of each key.
    """

    def __init__(self, seed_for: SeedFor, elements: Sequence[int]) -> None:
        self._seed_for = seed_for
        self._elements = elements

    def fill(self, rank: int, key: int, draw: int, out: Float32Array) -> None:
        """Write a rank's gradient of a key."""
        seed = self._seed_for("gradient", rank, key, draw)
        np.random.default_rng(seed).random(dtype=np.float32, out=out)
        # The values are multiples of 2^-24, so both steps are exact.
        np.multiply(out, 2.0, out=out)
        np.subtract(out, 1.0, out=out)

    def make_gradient(self, rank: int, key: int, draw: int) -> Float32Array:
        """Return a rank's gradient of a key in new memory."""
        out = np.empty(self._elements[key], np.float32)
        self.fill(rank, key, draw, out)
        return out
