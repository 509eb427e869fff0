"""Reach of windows: the pixels beyond a tile that each operator of a layer reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from spbench_core.layout.window import expand_pair
from spbench_core.models.layers import Model
from spbench_core.models.parts import Builder, CellOutput, Conv, MapShape, NetworkPiece, Pool


@dataclass(frozen=True, slots=True)
class Reach:
    """The reach of one operator.

    Attributes:
        shape: The shape of the map that it reads.
        rows: The maximum of rows that it reads beyond a tile, on one side.
        cols: The maximum of columns that it reads beyond a tile, on one side.
        normalises: Whether it is a batch normalisation.
    """

    shape: MapShape
    rows: int
    cols: int
    normalises: bool = False


Reaches = tuple[Reach, ...]


class ReachBuilder:
    """A builder that lists the reach of each operator instead of making modules."""

    def conv(self, conv: Conv, shape: MapShape) -> Reaches:
        if conv.shifted:
            return (Reach(shape, 1, 1),)
        rows, cols = (
            max(padding, kernel - 1 - padding)
            for padding, kernel in zip(conv.padding, expand_pair(conv.kernel), strict=True)
        )
        return (Reach(shape, rows, cols),)

    def norm(self, shape: MapShape) -> Reaches:
        return (Reach(shape, 0, 0, normalises=True),)

    def relu(self) -> Reaches:
        return ()

    def identity(self) -> Reaches:
        return ()

    def pool(self, pool: Pool, shape: MapShape) -> Reaches:
        pixels = max(pool.padding, pool.kernel - 1 - pool.padding)
        return (Reach(shape, pixels, pixels),)

    def mean(self, shape: MapShape) -> Reaches:
        return (Reach(shape, 0, 0),)

    def flatten(self, shape: MapShape) -> Reaches:
        return ()

    def linear(self, outputs: int, shape: MapShape) -> Reaches:
        return ()

    def chain(self, steps: Mapping[str, Reaches]) -> Reaches:
        return _concatenate(steps.values())

    def residual(self, main: Reaches, shortcut: Reaches, relu: bool) -> Reaches:
        return main + shortcut

    def concat(self, branches: Mapping[str, Reaches]) -> Reaches:
        return _concatenate(branches.values())

    def cell(
        self,
        prepare: Sequence[Reaches],
        operations: Sequence[tuple[int, Reaches]],
        output: CellOutput,
    ) -> Reaches:
        return _concatenate((*prepare, *(reaches for _, reaches in operations)))

    def piece(self, piece: NetworkPiece) -> Reaches:
        # Only whole images have pieces, so they read nothing beyond a tile.
        return tuple(Reach(shape, 0, 0, normalised) for shape, normalised in piece.input_maps)


REACH_BUILDER: Final[Builder[Reaches]] = ReachBuilder()


def find_reaches(model: Model) -> list[Reaches]:
    """Return the reaches of a model's operators, by layer."""
    return [
        layer.build(REACH_BUILDER, flow)
        for layer, flow in zip(model.layers, model.flows, strict=False)
    ]


def find_smallest_normalised_size(model: Model) -> int | None:
    """Return the pixels of the smallest normalised map, or None."""
    reaches = chain.from_iterable(find_reaches(model))
    sizes = (reach.shape.height * reach.shape.width for reach in reaches if reach.normalises)
    return min(sizes, default=None)


def count_kept_values(model: Model) -> int:
    """Return the values of operators' inputs that a step keeps per image."""
    reaches = chain.from_iterable(find_reaches(model))
    return sum(reach.shape.values for reach in reaches)


def _concatenate(reaches: Iterable[Reaches]) -> Reaches:
    return tuple(chain.from_iterable(reaches))
