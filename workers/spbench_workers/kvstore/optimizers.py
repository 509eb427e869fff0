"""Optimizers as MXNet's stores run them, with its default numbers: in place, in float32.

There is no weight decay and no rescaling. ``none`` is a store without an optimizer: the sum that
was pushed takes the place of the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

LEARNING_RATE = 0.01
MOMENTUM = 0.9
ADAM_RATE = 0.001
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

_BLOCK = 1 << 15
"""Elements that go through all steps of an update together: as many as stay in a core's
cache."""


class Optimizer(Protocol):
    """An optimizer with the state of one key, or of one shard of it."""

    def update(self, weight: Array, gradient: Array) -> None:
        """Change the weight in place by a gradient, which stays as it is; nothing is allocated.

        Args:
            weight: One axis, contiguous, with the elements that the optimizer was made for.
            gradient: The same shape; it does not overlap the weight.
        """


class Overwrite:
    """No optimizer: the weight becomes the gradient."""

    def __init__(self, elements: int) -> None:
        self.elements = elements

    def update(self, weight: Array, gradient: Array) -> None:
        np.copyto(weight, gradient)


class Sgd:
    """Stochastic gradient descent, ``w -= rate * g``."""

    def __init__(self, elements: int) -> None:
        self.elements = elements
        self._step = np.empty(min(elements, _BLOCK), np.float32)

    def update(self, weight: Array, gradient: Array) -> None:
        for first in range(0, self.elements, _BLOCK):
            part = slice(first, first + _BLOCK)
            step = self._step[: min(_BLOCK, self.elements - first)]
            np.multiply(gradient[part], LEARNING_RATE, out=step)
            np.subtract(weight[part], step, out=weight[part])


class Momentum:
    """Gradient descent with momentum, ``m = momentum * m - rate * g`` and ``w += m``."""

    def __init__(self, elements: int) -> None:
        self.elements = elements
        self._velocity = np.zeros(elements, np.float32)
        self._step = np.empty(min(elements, _BLOCK), np.float32)

    def update(self, weight: Array, gradient: Array) -> None:
        for first in range(0, self.elements, _BLOCK):
            part = slice(first, first + _BLOCK)
            step = self._step[: min(_BLOCK, self.elements - first)]
            velocity = self._velocity[part]
            np.multiply(velocity, MOMENTUM, out=velocity)
            np.multiply(gradient[part], LEARNING_RATE, out=step)
            np.subtract(velocity, step, out=velocity)
            np.add(weight[part], velocity, out=weight[part])


class Adam:
    """Adam as MXNet has it: the correction of both means lies in the rate.

    ``rate_t = rate * sqrt(1 - beta2^t) / (1 - beta1^t)``, with t the updates of this key, and
    ``w -= rate_t * m / (sqrt(v) + epsilon)`` (Kingma and Ba, 2015, end of section 2).
    """

    def __init__(self, elements: int) -> None:
        self.elements = elements
        self._mean = np.zeros(elements, np.float32)
        self._square = np.zeros(elements, np.float32)
        self._step = np.empty(min(elements, _BLOCK), np.float32)
        self._updates = 0

    def update(self, weight: Array, gradient: Array) -> None:
        self._updates += 1
        rate = ADAM_RATE * math.sqrt(1 - BETA2**self._updates) / (1 - BETA1**self._updates)
        for first in range(0, self.elements, _BLOCK):
            part = slice(first, first + _BLOCK)
            self._update_part(weight[part], gradient[part], part, rate)

    def _update_part(self, weight: Array, gradient: Array, part: slice, rate: float) -> None:
        mean, square = self._mean[part], self._square[part]
        step = self._step[: len(mean)]
        np.multiply(mean, BETA1, out=mean)
        np.multiply(gradient, 1 - BETA1, out=step)
        np.add(mean, step, out=mean)
        np.multiply(square, BETA2, out=square)
        np.multiply(gradient, gradient, out=step)
        np.multiply(step, 1 - BETA2, out=step)
        np.add(square, step, out=square)
        np.sqrt(square, out=step)
        np.add(step, EPSILON, out=step)
        np.divide(mean, step, out=step)
        np.multiply(step, rate, out=step)
        np.subtract(weight, step, out=weight)


OPTIMIZERS: dict[str, Callable[[int], Optimizer]] = {
    "none": Overwrite,
    "sgd": Sgd,
    "momentum": Momentum,
    "adam": Adam,
}


def make(name: str, elements: int) -> Optimizer:
    """Return an optimizer for one key or shard of so many elements, its state all zeros.

    Raises:
        KeyError: There is no optimizer of that name in OPTIMIZERS.
    """
    return OPTIMIZERS[name](elements)
