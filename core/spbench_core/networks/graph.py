"""Layers that follow the shape of one image through a network and collect its parameters.

There are no data and no sums, only shapes. The rules are MXNet's, whose networks these are:
convolutions and pools round down, and a layer without a name is called after its kind and counted
from 0.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from spbench_core.layout.window import both_axes

Map = tuple[int, int, int]
"""Channels, height and width of the map between two layers."""
Pair = int | tuple[int, int]
"""Height and width, or one number for both."""


class NetworkError(ValueError):
    """The error of a network that cannot be made as asked: it names the wrong parameter.

    ``param`` is ``network``, ``num_layers``, ``image_shape`` or ``num_classes``.
    """

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class TooSmallError(Exception):
    """A layer's window is larger than the map that reaches it; the text names both."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One array that is learnt: a layer's weight or bias, under MXNet's name."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of values."""
        return math.prod(self.shape)


class NetworkGraph:
    """A network while it is built: each layer adds its parameters and returns its output's shape.

    Attributes:
        parameters: Weights and biases, in the order in which the layers were added. MXNet numbers
            its arguments depth first from the output, so a network adds its layers in that order:
            branches as they are concatenated, a shortcut after what it is added to.
    """

    def __init__(self) -> None:
        self.parameters: list[Parameter] = []
        self._unnamed: Counter[str] = Counter()

    def conv(
        self,
        data: Map,
        filters: int,
        kernel: Pair = 1,
        *,
        stride: int = 1,
        pad: Pair = 0,
        groups: int = 1,
        bias: bool = False,
        name: str | None = None,
    ) -> Map:
        """Add a convolution: weight ``(filters, channels / groups, height, width)``, and a bias.

        Raises:
            TooSmallError: The kernel is larger than the padded map.
        """
        name = name or self._next_name("convolution")
        kernel = both_axes(kernel)
        height, width = _windows(name, data, kernel, stride, both_axes(pad))
        self.parameters.append(Parameter(f"{name}_weight", (filters, data[0] // groups, *kernel)))
        if bias:
            self.parameters.append(Parameter(f"{name}_bias", (filters,)))
        return filters, height, width

    def pool(
        self, data: Map, kernel: int, *, stride: int = 1, pad: int = 0, name: str | None = None
    ) -> Map:
        """Return the map that a pool gives.

        Raises:
            TooSmallError: The window is larger than the padded map.
        """
        name = name or self._next_name("pooling")
        return data[0], *_windows(name, data, both_axes(kernel), stride, both_axes(pad))

    def dense(self, data: Map, units: int, *, name: str | None = None) -> Map:
        """Flatten, and add a fully connected layer with its bias."""
        name = name or self._next_name("fullyconnected")
        self.parameters.append(Parameter(f"{name}_weight", (units, math.prod(data))))
        self.parameters.append(Parameter(f"{name}_bias", (units,)))
        return units, 1, 1

    def _next_name(self, kind: str) -> str:
        number = self._unnamed[kind]
        self._unnamed[kind] += 1
        return f"{kind}{number}"


def global_pool(data: Map) -> Map:
    """Return the map that a pool over the whole map gives."""
    return data[0], 1, 1


def concat(*branches: Map) -> Map:
    """Return branches of equal height and width as one map, one's channels after the other's."""
    sizes = {branch[1:] for branch in branches}
    if len(sizes) > 1:
        raise ValueError(f"branches differ in height or width: {branches}")
    return sum(branch[0] for branch in branches), *sizes.pop()


def add(data: Map, shortcut: Map) -> Map:
    """Return the sum of two maps of one shape."""
    if data != shortcut:
        raise ValueError(f"maps of {data} and {shortcut} cannot be added")
    return data


def same(kernel: Pair) -> Pair:
    """Return the padding with which a convolution of odd kernel keeps height and width."""
    height, width = both_axes(kernel)
    return (height - 1) // 2, (width - 1) // 2


def _windows(
    name: str, data: Map, kernel: tuple[int, int], stride: int, pad: tuple[int, int]
) -> tuple[int, int]:
    """Return how many windows stand in a padded map, down and across."""
    padded = data[1] + 2 * pad[0], data[2] + 2 * pad[1]
    if kernel[0] > padded[0] or kernel[1] > padded[1]:
        raise TooSmallError(
            f"{name} has a window of {kernel[0]}x{kernel[1]} and gets {padded[0]}x{padded[1]}"
        )
    return (padded[0] - kernel[0]) // stride + 1, (padded[1] - kernel[1]) // stride + 1
