"""Parts of networks as data: operators, and the shapes that they give, by arithmetic.

A part takes one map and gives one. It says what becomes of a map's shape, and asks a builder for
the operators that do it: one builder makes modules for whole images, another for tiles, a third
only counts parameters and multiply-adds. Thus each network is written down once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from spbench_core.layout.window import Pair, Window, Window2d, expand_pair

M = TypeVar("M")
"""The result of a builder for a part: a module, or a count."""


class ModelError(ValueError):
    """The error of a network that cannot be made as asked; ``param`` is the wrong parameter."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Map:
    """The shape of an image, or of what a layer makes of it: ``channels x height x width``."""

    channels: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width, as they stand in a tensor after the batch."""
        return self.channels, self.height, self.width

    @property
    def values(self) -> int:
        """The number of values."""
        return self.channels * self.height * self.width

    def __str__(self) -> str:
        return f"{self.channels} channels of {self.height}x{self.width}"


class Builder(Protocol[M]):
    """Makes operators for maps of a known shape, and puts them together."""

    def conv(self, conv: Conv, data: Map) -> M: ...
    def norm(self, data: Map) -> M: ...
    def relu(self) -> M: ...
    def identity(self) -> M: ...
    def pool(self, pool: Pool, data: Map) -> M: ...
    def mean(self, data: Map) -> M: ...
    def flatten(self, data: Map) -> M: ...
    def linear(self, outputs: int, data: Map) -> M: ...
    def chain(self, steps: Mapping[str, M]) -> M: ...
    def residual(self, main: M, shortcut: M, relu: bool) -> M: ...
    def concat(self, branches: Mapping[str, M]) -> M: ...
    def cell(
        self, prepare: Sequence[M], operations: Sequence[tuple[int, M]], output: CellOutput
    ) -> M: ...
    def piece(self, piece: NetworkPiece) -> M: ...


class NetworkPiece(Protocol):
    """A piece of a network that no parts describe: what is known of it, and its module.

    Attributes:
        parameters: Its trainable parameters.
        multiply_adds: Its multiply-adds for one image.
        read: The maps that its operators read, and whether they are normalised.
    """

    @property
    def parameters(self) -> int: ...
    @property
    def multiply_adds(self) -> int: ...
    @property
    def input_maps(self) -> Sequence[tuple[Map, bool]]: ...
    def make_module(self) -> Any:
        """Return a new module of it, for whole images, with its initial weights."""


@dataclass(frozen=True, slots=True)
class CellOutput:
    """The output of a cell: which of its states are concatenated, and what else it passes on.

    Attributes:
        concat: The states whose channels are its output, by their index.
        keeps: Whether it passes on the output of the cell before it too, as a second tensor.
    """

    concat: tuple[int, ...]
    passes_previous: bool


class Part(ABC):
    """An operator of a network, or several of them, from one map to one map."""

    __slots__ = ()

    @abstractmethod
    def output(self, data: Map) -> Map:
        """Return the shape that a map of this shape becomes.

        Raises:
            ValueError: A window is larger than the padded map.
        """

    @abstractmethod
    def build(self, builder: Builder[M], data: Map) -> M:
        """Return the operator that the builder makes of this part, for a map of this shape."""


@dataclass(frozen=True, slots=True)
class Conv(Part):
    """A convolution.

    Attributes:
        filters: Channels of the output.
        kernel: Rows and columns.
        stride: The strides of rows and columns.
        bias: Whether a bias is added.
        pad: Rows and columns of zeros on each side; None: as many as keep a map's size if the
            kernel is odd and the stride 1.
        groups: Groups of channels that are convolved apart from each other.
        shifted: Whether a kernel of 1 with a stride of 2 reads the pixels at odd rows and columns
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

    def weight_shape(self, data: Map) -> tuple[int, ...]:
        """Return the shape of its weight: filters, channels of a group, rows and columns."""
        return self.filters, data.channels // self.groups, *expand_pair(self.kernel)

    def output(self, data: Map) -> Map:
        kernel, padding = (2, (0, 0)) if self.shifted else (self.kernel, self.padding)
        return Map(self.filters, *_outputs(data, kernel, self.stride, padding))

    def build(self, builder: Builder[M], data: Map) -> M:
        return builder.conv(self, data)


@dataclass(frozen=True, slots=True)
class Pool(Part):
    """Max or average pooling: the maximum or mean of each window; padding does not count.

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

    def output(self, data: Map) -> Map:
        size = _outputs(data, self.kernel, self.stride, (self.padding, self.padding))
        return Map(data.channels, *size)

    def build(self, builder: Builder[M], data: Map) -> M:
        return builder.pool(self, data)


class _SameShape(Part):
    __slots__ = ()

    def output(self, data: Map) -> Map:
        return data


@dataclass(frozen=True, slots=True)
class Norm(_SameShape):
    """Batch normalisation."""

    def build(self, builder: Builder[M], data: Map) -> M:
        return builder.norm(data)


@dataclass(frozen=True, slots=True)
class Relu(_SameShape):
    """A ReLU: positive values stay, the others become 0."""

    def build(self, builder: Builder[M], data: Map) -> M:
        return builder.relu()


@dataclass(frozen=True, slots=True)
class Identity(_SameShape):
    """The identity: a map stays as it is."""

    def build(self, builder: Builder[M], data: Map) -> M:
        return builder.identity()


@dataclass(frozen=True, slots=True)
class Mean(Part):
    """Global average pooling: the mean of each channel, as a vector."""

    def output(self, data: Map) -> Map:
        return Map(data.channels, 1, 1)

    def build(self, builder: Builder[M], data: Map) -> M:
        return builder.mean(data)


@dataclass(frozen=True, slots=True)
class Flatten(Part):
    """All values of a map, as a vector."""

    def output(self, data: Map) -> Map:
        return Map(data.values, 1, 1)

    def build(self, builder: Builder[M], data: Map) -> M:
        return builder.flatten(data)


@dataclass(frozen=True, slots=True)
class Linear(Part):
    """A fully connected layer with a bias, from a vector to a vector of ``outputs`` values."""

    outputs: int

    def weight_shape(self, data: Map) -> tuple[int, ...]:
        """Return the shape of its weight: outputs and inputs."""
        return self.outputs, data.values

    def output(self, data: Map) -> Map:
        return Map(self.outputs, 1, 1)

    def build(self, builder: Builder[M], data: Map) -> M:
        return builder.linear(self.outputs, data)


def _outputs(data: Map, kernel: Pair, stride: Pair, padding: tuple[int, int]) -> tuple[int, int]:
    axes = zip(expand_pair(kernel), expand_pair(stride), padding, strict=True)
    rows, cols = (Window(*axis) for axis in axes)
    return Window2d(rows, cols).output_size(data.height, data.width)
