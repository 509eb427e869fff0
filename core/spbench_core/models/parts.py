"""Parts of networks as data: operators and the shapes of their outputs.

A part turns one map into another. It computes the shape of its output, and calls a builder for its
operators. One builder makes modules for whole images, another makes modules for tiles, and a third
only counts parameters and multiply-adds. Thus each network is defined once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from spbench_core.layout.window import Pair, Window, Window2d, expand_pair

M = TypeVar("M")
"""The result of a builder for a part, such as a module or a count."""


class ModelError(ValueError):
    """A network that cannot be built; ``param`` is the invalid parameter."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class MapShape:
    """The shape of an image or a feature map: ``channels x height x width``."""

    channels: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width: the dimensions of a tensor after the batch."""
        return self.channels, self.height, self.width

    @property
    def values(self) -> int:
        """The number of values."""
        return self.channels * self.height * self.width

    def __str__(self) -> str:
        return f"{self.channels} channels of {self.height}x{self.width}"


class Builder(Protocol[M]):
    """A maker of operators for maps of a known shape, and of their combinations."""

    def conv(self, conv: Conv, shape: MapShape) -> M: ...
    def norm(self, shape: MapShape) -> M: ...
    def relu(self) -> M: ...
    def identity(self) -> M: ...
    def pool(self, pool: Pool, shape: MapShape) -> M: ...
    def mean(self, shape: MapShape) -> M: ...
    def flatten(self, shape: MapShape) -> M: ...
    def linear(self, outputs: int, shape: MapShape) -> M: ...
    def chain(self, steps: Mapping[str, M]) -> M: ...
    def residual(self, main: M, shortcut: M, relu: bool) -> M: ...
    def concat(self, branches: Mapping[str, M]) -> M: ...
    def cell(
        self, prepare: Sequence[M], operations: Sequence[tuple[int, M]], output: CellOutput
    ) -> M: ...
    def piece(self, piece: NetworkPiece) -> M: ...


class NetworkPiece(Protocol):
    """A piece of a network that is not described by parts, with its module.

    Attributes:
        parameters: Its trainable parameters.
        multiply_adds: Its multiply-adds for one image.
        input_maps: The maps that its operators read, and whether the operator is a batch norm.
    """

    @property
    def parameters(self) -> int: ...
    @property
    def multiply_adds(self) -> int: ...
    @property
    def input_maps(self) -> Sequence[tuple[MapShape, bool]]: ...
    def make_module(self) -> Any:
        """Return a new module for whole images, with the initial weights."""


@dataclass(frozen=True, slots=True)
class CellOutput:
    """The output of a cell.

    Attributes:
        concat: The indices of the states that are concatenated along their channels.
        passes_previous: Whether the output of the previous cell is a second output.
    """

    concat: tuple[int, ...]
    passes_previous: bool


class Part(ABC):
    """One or several operators of a network, from one map to one map."""

    __slots__ = ()

    @abstractmethod
    def output(self, shape: MapShape) -> MapShape:
        """Return the output shape for an input of this shape.

        Raises:
            ValueError: A window is larger than the padded map.
        """

    @abstractmethod
    def build(self, builder: Builder[M], shape: MapShape) -> M:
        """Build the part, for example as a module, for an input of this shape."""


@dataclass(frozen=True, slots=True)
class Conv(Part):
    """A convolution.

    Attributes:
        filters: The number of output channels.
        kernel: Rows and columns.
        stride: The strides of rows and columns.
        bias: Whether a bias is added.
        pad: Rows and columns of zeros on each side. None: half of the kernel, which keeps the size
            of a map if the kernel is odd and the stride is 1.
        groups: The number of groups of channels that are convolved separately.
        shifted: Whether a kernel of 1 with a stride of 2 reads the pixels in odd rows and columns
            instead of the even ones.
    """

    filters: int
    kernel: Pair = 1
    stride: Pair = 1
    bias: bool = False
    pad: Pair | None = None
    groups: int = 1
    shifted: bool = False

    @property
    def padding(self) -> tuple[int, int]:
        """Rows and columns of zeros on each side."""
        if self.pad is not None:
            return expand_pair(self.pad)
        rows, cols = expand_pair(self.kernel)
        return rows // 2, cols // 2

    def compute_weight_shape(self, shape: MapShape) -> tuple[int, ...]:
        """Return the shape of the weight: filters, channels per group, rows and columns."""
        return self.filters, shape.channels // self.groups, *expand_pair(self.kernel)

    def output(self, shape: MapShape) -> MapShape:
        kernel, padding = (2, (0, 0)) if self.shifted else (self.kernel, self.padding)
        return MapShape(self.filters, *_compute_output_size(shape, kernel, self.stride, padding))

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        return builder.conv(self, shape)


@dataclass(frozen=True, slots=True)
class Pool(Part):
    """Max or average pooling: the maximum or mean of each window, without its padding.

    Attributes:
        kind: ``max`` or ``avg``.
        kernel: Rows and columns.
        stride: The strides of rows and columns.
        padding: Rows and columns on each side.
    """

    kind: Literal["max", "avg"]
    kernel: int
    stride: int
    padding: int = 0

    def output(self, shape: MapShape) -> MapShape:
        size = _compute_output_size(shape, self.kernel, self.stride, (self.padding, self.padding))
        return MapShape(shape.channels, *size)

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        return builder.pool(self, shape)


class _SameShape(Part):
    __slots__ = ()

    def output(self, shape: MapShape) -> MapShape:
        return shape


@dataclass(frozen=True, slots=True)
class Norm(_SameShape):
    """Batch normalisation."""

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        return builder.norm(shape)


@dataclass(frozen=True, slots=True)
class Relu(_SameShape):
    """A ReLU: negative values become 0."""

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        return builder.relu()


@dataclass(frozen=True, slots=True)
class Identity(_SameShape):
    """The identity."""

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        return builder.identity()


@dataclass(frozen=True, slots=True)
class Mean(Part):
    """Global average pooling: a vector with the mean of each channel."""

    def output(self, shape: MapShape) -> MapShape:
        return MapShape(shape.channels, 1, 1)

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        return builder.mean(shape)


@dataclass(frozen=True, slots=True)
class Flatten(Part):
    """Flattening of a map to a vector of its values."""

    def output(self, shape: MapShape) -> MapShape:
        return MapShape(shape.values, 1, 1)

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        return builder.flatten(shape)


@dataclass(frozen=True, slots=True)
class Linear(Part):
    """A fully connected layer with a bias, to a vector of ``outputs`` values."""

    outputs: int

    def compute_weight_shape(self, shape: MapShape) -> tuple[int, ...]:
        """Return the shape of the weight: outputs and inputs."""
        return self.outputs, shape.values

    def output(self, shape: MapShape) -> MapShape:
        return MapShape(self.outputs, 1, 1)

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        return builder.linear(self.outputs, shape)


def _compute_output_size(
    shape: MapShape, kernel: Pair, stride: Pair, padding: tuple[int, int]
) -> tuple[int, int]:
    args_by_axis = zip(expand_pair(kernel), expand_pair(stride), padding, strict=True)
    rows, cols = (Window(*window_args) for window_args in args_by_axis)
    return Window2d(rows, cols).output_size(shape.height, shape.width)
