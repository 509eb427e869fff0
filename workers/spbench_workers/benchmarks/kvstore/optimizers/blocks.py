"""Common parts of the optimizers: constants, and updates in blocks.

There is no weight decay and no rescaling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from spbench_workers.benchmarks.kvstore.arrays import Float32Array

LEARNING_RATE = 0.01
MOMENTUM = 0.9

BLOCK_ELEMENTS = 1 << 15
"""Elements processed by all steps of an update together, which fit in a core's cache."""


class StoreOptimizer(Protocol):
    """An optimizer with the state of one key, or of one shard of it."""

    def update(self, weight: Float32Array, gradient: Float32Array) -> None:
        """Update the weight in place by a gradient, without allocation.

        Args:
            weight: One-dimensional and contiguous, with the elements of the optimizer.
            gradient: An array of the same shape that does not overlap the weight; unchanged.
        """


class BlockwiseOptimizer(ABC):
    """An elementwise optimizer that updates one block after another.

    Attributes:
        states: Numbers kept per element, initially zeros.
        scratches: Temporary numbers per element of a block.
    """

    states: ClassVar[int] = 0
    scratches: ClassVar[int] = 1

    def __init__(self, elements: int) -> None:
        self.elements = elements
        self._states = [np.zeros(elements, np.float32) for _ in range(self.states)]
        block = min(elements, BLOCK_ELEMENTS)
        self._scratch = [np.empty(block, np.float32) for _ in range(self.scratches)]
        self._updates = 0

    def update(self, weight: Float32Array, gradient: Float32Array) -> None:
        """Change the weight in place by a gradient."""
        self._updates += 1
        for first in range(0, self.elements, BLOCK_ELEMENTS):
            part = slice(first, first + BLOCK_ELEMENTS)
            count = min(BLOCK_ELEMENTS, self.elements - first)
            states = [state[part] for state in self._states]
            scratch = [array[:count] for array in self._scratch]
            self._update(weight[part], gradient[part], states, scratch)

    @abstractmethod
    def _update(
        self,
        weight: Float32Array,
        gradient: Float32Array,
        states: Sequence[Float32Array],
        scratch: Sequence[Float32Array],
    ) -> None:
        """Change a block of the weight and of the states."""


def update_mean(
    mean: Float32Array, decay: float, value: Float32Array, scratch: Float32Array
) -> None:
    """Update a running mean: ``mean = decay * mean + (1 - decay) * value``."""
    np.multiply(mean, decay, out=mean)
    np.multiply(value, 1 - decay, out=scratch)
    np.add(mean, scratch, out=mean)
