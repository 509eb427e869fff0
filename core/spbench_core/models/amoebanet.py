"""AmoebaNet-D, a network found by evolutionary search.

Cells, operations and names are those of torchgpipe; the benchmarks of MPI4DL use its version, too.
It differs from the published network in two ways, which parameters undo. It has mean pools instead
of maximum pools of 3x3 (``pool3``). And the two halves of a factorized reduce, which halves a map,
read the same pixels in MPI4DL, without a shift by one pixel (``shift``). Real et al., "Regularized
Evolution for Image Classifier Architecture Search", 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from spbench_core.models.compose import Chain, Concat, make_chain
from spbench_core.models.layers import Cell, Layer, Model, Plain
from spbench_core.models.parts import (
    CellOutput,
    Conv,
    Identity,
    Linear,
    MapShape,
    Mean,
    ModelError,
    Norm,
    Part,
    Pool,
    Relu,
)

NORMAL = (
    *((1, "conv1x1"), (1, "pool3")),
    *((1, "none"), (0, "conv1x7_7x1")),
    *((0, "conv1x1"), (0, "conv1x7_7x1")),
    *((2, "pool3"), (2, "none")),
    *((1, "avg3"), (5, "conv1x1")),
)
"""The operations of a normal cell, each with the state that it reads. Pairs are added."""
NORMAL_CONCAT = (0, 3, 4, 6)
REDUCTION = (
    *((0, "max2"), (0, "pool3")),
    *((2, "none"), (1, "conv3x3")),
    *((2, "conv1x7_7x1"), (2, "pool3")),
    *((3, "none"), (1, "max2")),
    *((2, "avg3"), (3, "conv1x1")),
)
"""The operations of a reduction cell; those that read states 0 and 1 have a stride of 2."""
REDUCTION_CONCAT = (4, 5, 6)
TOTAL_STRIDE = 32
"""The factor by which the network reduces height and width: five halvings."""
MIN_FILTERS = 8
"""The smallest ``num_filters``; the narrowest convolutions have an eighth of it."""


def amoebanet(
    image: MapShape,
    *,
    num_classes: int = 10,
    num_layers: int = 18,
    num_filters: int = 416,
    pool3: Literal["avg", "max"] = "avg",
    shift: bool = False,
) -> Model:
    """Return AmoebaNet-D.

    Args:
        image: The shape of an image; height and width are multiples of 32.
        num_classes: The number of classes.
        num_layers: The number of normal cells, a multiple of 3; there are also four reduction
            cells.
        num_filters: Four times the filters of the first convolution; 8 or more.
        pool3: The kind of the 3x3 pools that are maximum pools in the published network.
        shift: Whether the second half of a factorized reduce reads the odd pixels.

    Raises:
        ModelError: An argument is invalid.
    """
    if num_layers < 3 or num_layers % 3:
        raise ModelError("num_layers", f"num_layers is {num_layers}; it must be a multiple of 3")
    if num_filters < MIN_FILTERS:
        raise ModelError(
            "num_filters", f"num_filters is {num_filters}; it must be {MIN_FILTERS} or more"
        )
    if pool3 not in ("avg", "max"):
        raise ModelError("pool3", f"there is no pool3 {pool3!r}; there are avg and max")
    _check_size(image)
    cells = _Cells(num_filters // 4, pool3, shift)
    stem = make_chain(relu=Relu(), conv=Conv(num_filters // 4, 3, stride=2), norm=Norm())
    head = make_chain(mean=Mean(), linear=Linear(num_classes))
    layers: list[Layer] = [Plain("stem1", stem)]
    layers += cells.make_cells(num_layers // 3)
    layers.append(Plain("classify", head))
    return Model(f"AmoebaNet-D ({num_layers}, {num_filters})", image, tuple(layers))


def _check_size(image: MapShape) -> None:
    for side in (image.height, image.width):
        if side % TOTAL_STRIDE or side < TOTAL_STRIDE:
            nearest = ", ".join(map(str, _find_nearest_sides(side)))
            raise ModelError(
                "image_size",
                f"an image of {image.height}x{image.width} pixels cannot be halved five times; "
                f"height and width must be multiples of {TOTAL_STRIDE} (near {side}: {nearest})",
            )


def _find_nearest_sides(side: int) -> list[int]:
    lower_side = side - side % TOTAL_STRIDE
    return [multiple for multiple in (lower_side, lower_side + TOTAL_STRIDE) if multiple]


@dataclass(slots=True)
class _Cells:
    """A builder of all cells; a reduction doubles their width.

    Attributes:
        channels: Filters of the next cell's operations.
        pool3: See `amoebanet`.
        shift: See `amoebanet`.
        previous_channels: Channels of the outputs of the previous cell and of the cell before it.
        previous_is_reduction: Whether the previous cell is a reduction.
    """

    channels: int
    pool3: Literal["avg", "max"]
    shift: bool
    previous_channels: tuple[int, int] = (0, 0)
    previous_is_reduction: bool = False

    def make_cells(self, normal_cells: int) -> Iterator[Cell]:
        """Yield all cells, with ``normal_cells`` normal ones in a row."""
        self.previous_channels = (self.channels, self.channels)
        yield self._make_cell("stem2", reduction=True)
        yield self._make_cell("stem3", reduction=True)
        for group in (1, 3, 5):
            for index in range(normal_cells):
                last = group == 5 and index == normal_cells - 1
                yield self._make_cell(f"cell{group}_normal{index + 1}", reduction=False, last=last)
            if group < 5:
                yield self._make_cell(f"cell{group + 1}_reduction", reduction=True)

    def _make_cell(self, name: str, *, reduction: bool, last: bool = False) -> Cell:
        if reduction:
            self.channels *= 2
        prepare = (_make_relu_conv_norm(self.channels), self._prepare_older())
        state_operations, concat = (
            (REDUCTION, REDUCTION_CONCAT) if reduction else (NORMAL, NORMAL_CONCAT)
        )
        operations = tuple(
            (state, self._make_operation(operation, 2 if reduction and state < 2 else 1))
            for state, operation in state_operations
        )
        self.previous_channels = (len(concat) * self.channels, self.previous_channels[0])
        self.previous_is_reduction = reduction
        return Cell(name, prepare, operations, CellOutput(concat, passes_previous=not last))

    def _prepare_older(self) -> Part:
        """Return the part that fits the older of a cell's two inputs to the cell's shape."""
        if self.previous_is_reduction:
            return _make_factorized_reduce(self.channels, self.shift)
        if self.previous_channels[1] != self.channels:
            return _make_relu_conv_norm(self.channels)
        return Identity()

    def _make_operation(self, name: str, stride: int) -> Part:
        match name:
            case "none":
                return Identity()
            case "avg3":
                return Pool("avg", 3, 1, padding=1)
            case "pool3":
                return Pool(self.pool3, 3, stride, padding=1)
            case "max2":
                return Pool("max", 2, 2)
            case "conv1x1":
                return _make_relu_conv_norm(self.channels)
            case "conv3x3":
                return _make_bottleneck(self.channels, ((3, 3), stride))
        assert name == "conv1x7_7x1", name
        return _make_bottleneck(self.channels, ((1, 7), 1), ((7, 1), 1))


def _make_relu_conv_norm(filters: int) -> Chain:
    return make_chain(relu=Relu(), conv=Conv(filters), norm=Norm())


def _make_bottleneck(filters: int, *inner_convs: tuple[tuple[int, int], int]) -> Chain:
    """Return a bottleneck: 1x1, (kernel, stride) at a quarter of the width, 1x1."""
    inner_filters = filters // 4
    convs = [
        Conv(inner_filters),
        *(Conv(inner_filters, *kernel_and_stride) for kernel_and_stride in inner_convs),
        Conv(filters),
    ]
    steps: list[tuple[str, Part]] = []
    for index, conv in enumerate(convs, start=1):
        steps += [(f"relu{index}", Relu()), (f"conv{index}", conv), (f"norm{index}", Norm())]
    return Chain(tuple(steps))


def _make_factorized_reduce(filters: int, shift: bool) -> Chain:
    """Return two convolutions with stride 2, which halve height and width."""
    half_filters = filters // 2
    half_convs = (
        ("first", Conv(half_filters, stride=2)),
        ("second", Conv(half_filters, stride=2, shifted=shift)),
    )
    return make_chain(relu=Relu(), conv=Concat(half_convs), norm=Norm())
