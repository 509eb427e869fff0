"""Operators of a network and their output values, counted without building it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spbench_core.models.layers import Model
from spbench_core.models.parts import CellOutput, Conv, MapShape, NetworkPiece, Pool


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """The number of operators of a part, and of their output values for one image."""

    operators: int = 0
    values: int = 0


class OperatorBuilder:
    """A builder that counts operators and their outputs instead of making modules."""

    def conv(self, conv: Conv, shape: MapShape) -> OperatorCount:
        return OperatorCount(1, conv.output(shape).values)

    def norm(self, shape: MapShape) -> OperatorCount:
        return OperatorCount(1, shape.values)

    def relu(self) -> OperatorCount:
        return OperatorCount(1)

    def identity(self) -> OperatorCount:
        return OperatorCount()

    def pool(self, pool: Pool, shape: MapShape) -> OperatorCount:
        return OperatorCount(1, pool.output(shape).values)

    def mean(self, shape: MapShape) -> OperatorCount:
        return OperatorCount(1, shape.channels)

    def flatten(self, shape: MapShape) -> OperatorCount:
        return OperatorCount()

    def linear(self, outputs: int, shape: MapShape) -> OperatorCount:
        return OperatorCount(1, outputs)

    def chain(self, steps: Mapping[str, OperatorCount]) -> OperatorCount:
        return _add_counts(steps.values())

    def residual(self, main: OperatorCount, shortcut: OperatorCount, relu: bool) -> OperatorCount:
        return _add_counts((main, shortcut, OperatorCount(1)))

    def concat(self, branches: Mapping[str, OperatorCount]) -> OperatorCount:
        return _add_counts((*branches.values(), OperatorCount(1)))

    def cell(
        self,
        prepare: Sequence[OperatorCount],
        operations: Sequence[tuple[int, OperatorCount]],
        output: CellOutput,
    ) -> OperatorCount:
        additions = OperatorCount(len(operations) // 2 + 1)
        return _add_counts((*prepare, *(count for _, count in operations), additions))

    def piece(self, piece: NetworkPiece) -> OperatorCount:
        return OperatorCount(1, sum(shape.values for shape, _ in piece.input_maps))


def count_operators(model: Model) -> OperatorCount:
    """Count the operators of a network, and their output values for one image."""
    builder = OperatorBuilder()
    return _add_counts(
        layer.build(builder, flow) for layer, flow in zip(model.layers, model.flows, strict=False)
    )


def _add_counts(counts: Iterable[OperatorCount]) -> OperatorCount:
    counts = tuple(counts)
    return OperatorCount(
        sum(count.operators for count in counts), sum(count.values for count in counts)
    )
