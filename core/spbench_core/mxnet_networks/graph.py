"""The parameters of a network, collected while shapes pass its layers.

Names and order of the layers are those of MXNet: a layer without a name is named by its kind and a
number from 0.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from spbench_core.layout.window import Pair, expand_pair
from spbench_core.models.parts import Conv, Flatten, Linear, MapShape, Pool


class TooSmallError(Exception):
    """A layer with a window that is larger than its input; the message has both sizes."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A trainable array: the weight or bias of a layer, with its name in MXNet."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of values."""
        return math.prod(self.shape)


class ParameterCollector:
    """A collector of the parameters of a network: layers add them and return shapes.

    Attributes:
        parameters: Weights and biases, in the order in which the layers were added. MXNet numbers
            its arguments depth first from the output. Therefore a network adds its layers in that
            order: branches in the order of their concatenation, and a shortcut after the body.
    """

    def __init__(self) -> None:
        self.parameters: list[Parameter] = []
        self._unnamed_by_type: Counter[str] = Counter()

    def conv(
        self,
        shape: MapShape,
        filters: int,
        kernel: Pair = 1,
        *,
        stride: int = 1,
        pad: Pair = 0,
        groups: int = 1,
        bias: bool = False,
        name: str | None = None,
    ) -> MapShape:
        """Add a convolution: weight ``(filters, channels / groups, rows, cols)``.

        Raises:
            TooSmallError: The kernel is larger than the padded map.
        """
        name = name or self._make_next_name("convolution")
        conv = Conv(filters, kernel, stride, bias, pad=pad, groups=groups)
        self.parameters.append(Parameter(f"{name}_weight", conv.compute_weight_shape(shape)))
        if bias:
            self.parameters.append(Parameter(f"{name}_bias", (filters,)))
        try:
            return conv.output(shape)
        except ValueError:
            raise _make_too_small_error(name, shape, expand_pair(kernel), conv.padding) from None

    def pool(
        self,
        shape: MapShape,
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        name: str | None = None,
    ) -> MapShape:
        """Return the output shape of a pool.

        Raises:
            TooSmallError: The window is larger than the padded map.
        """
        name = name or self._make_next_name("pooling")
        try:
            return Pool("max", kernel, stride, pad).output(shape)
        except ValueError:
            raise _make_too_small_error(
                name, shape, expand_pair(kernel), expand_pair(pad)
            ) from None

    def dense(self, shape: MapShape, units: int, *, name: str | None = None) -> MapShape:
        """Flatten a map, and add a fully connected layer with a bias."""
        name = name or self._make_next_name("fullyconnected")
        linear = Linear(units)
        flat_map = Flatten().output(shape)
        self.parameters.append(Parameter(f"{name}_weight", linear.compute_weight_shape(flat_map)))
        self.parameters.append(Parameter(f"{name}_bias", (units,)))
        return linear.output(flat_map)

    def _make_next_name(self, layer_type: str) -> str:
        index = self._unnamed_by_type[layer_type]
        self._unnamed_by_type[layer_type] += 1
        return f"{layer_type}{index}"


def compute_same_padding(kernel: Pair) -> Pair:
    """Return the padding with which an odd kernel keeps height and width."""
    return Conv(1, kernel).padding


def _make_too_small_error(
    name: str, shape: MapShape, window: tuple[int, int], padding: tuple[int, int]
) -> TooSmallError:
    padded_rows = shape.height + 2 * padding[0]
    padded_cols = shape.width + 2 * padding[1]
    return TooSmallError(
        f"{name} has a window of {window[0]}x{window[1]} and gets {padded_rows}x{padded_cols}"
    )
