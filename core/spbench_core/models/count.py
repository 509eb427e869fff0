"""Parameters and multiply-adds of a network, counted without building it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from spbench_core.models.parts import Builder, CellOutput, Conv, MapShape, NetworkPiece, Pool


@dataclass(frozen=True, slots=True)
class Count:
    """The size of a part: its parameters and multiply-adds.

    Attributes:
        parameters: Trainable parameters.
        multiply_adds: Multiply-adds of convolutions and fully connected layers in a forward pass of
            one image.
    """

    parameters: int = 0
    multiply_adds: int = 0


class CountingBuilder:
    """A builder that counts parameters and multiply-adds instead of making modules."""

    def conv(self, conv: Conv, shape: MapShape) -> Count:
        weight_count = prod(conv.compute_weight_shape(shape))
        output_map = conv.output(shape)
        bias_count = conv.filters if conv.bias else 0
        return Count(weight_count + bias_count, weight_count * output_map.height * output_map.width)

    def norm(self, shape: MapShape) -> Count:
        return Count(2 * shape.channels)

    def relu(self) -> Count:
        return Count()

    def identity(self) -> Count:
        return Count()

    def pool(self, pool: Pool, shape: MapShape) -> Count:
        return Count()

    def mean(self, shape: MapShape) -> Count:
        return Count()

    def flatten(self, shape: MapShape) -> Count:
        return Count()

    def linear(self, outputs: int, shape: MapShape) -> Count:
        weight_count = outputs * shape.values
        return Count(weight_count + outputs, weight_count)

    def chain(self, steps: Mapping[str, Count]) -> Count:
        return _add_counts(steps.values())

    def residual(self, main: Count, shortcut: Count, relu: bool) -> Count:
        return _add_counts((main, shortcut))

    def concat(self, branches: Mapping[str, Count]) -> Count:
        return _add_counts(branches.values())

    def cell(
        self,
        prepare: Sequence[Count],
        operations: Sequence[tuple[int, Count]],
        output: CellOutput,
    ) -> Count:
        return _add_counts((*prepare, *(count for _, count in operations)))

    def piece(self, piece: NetworkPiece) -> Count:
        return Count(piece.parameters, piece.multiply_adds)


COUNTING_BUILDER: Final[Builder[Count]] = CountingBuilder()


def _add_counts(counts: Iterable[Count]) -> Count:
    counts = tuple(counts)
    return Count(
        sum(count.parameters for count in counts), sum(count.multiply_adds for count in counts)
    )
