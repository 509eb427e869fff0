"""Parts made of other parts: chains, residual blocks and concatenations."""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.models.parts import Builder, M, Map, Part


@dataclass(frozen=True, slots=True)
class Chain(Part):
    """Named parts that run one after the other."""

    steps: tuple[tuple[str, Part], ...]

    def output(self, data: Map) -> Map:
        for _, part in self.steps:
            data = part.output(data)
        return data

    def build(self, builder: Builder[M], data: Map) -> M:
        steps = {}
        for name, part in self.steps:
            steps[name] = part.build(builder, data)
            data = part.output(data)
        return builder.chain(steps)


def chain(**steps: Part) -> Chain:
    """Return a chain of parts, with the keywords as their names."""
    return Chain(tuple(steps.items()))


@dataclass(frozen=True, slots=True)
class Residual(Part):
    """A residual block: the sum of two branches from one map.

    Attributes:
        main: The longer branch.
        shortcut: The shorter one, often the identity.
        relu: Whether a ReLU follows the sum.
    """

    main: Part
    shortcut: Part
    relu: bool = False

    def output(self, data: Map) -> Map:
        return add_maps(self.main.output(data), self.shortcut.output(data))

    def build(self, builder: Builder[M], data: Map) -> M:
        main = self.main.build(builder, data)
        shortcut = self.shortcut.build(builder, data)
        return builder.residual(main, shortcut, self.relu)


@dataclass(frozen=True, slots=True)
class Concat(Part):
    """Named branches from one map; their output channels are concatenated."""

    branches: tuple[tuple[str, Part], ...]

    def output(self, data: Map) -> Map:
        return concat_maps(*(branch.output(data) for _, branch in self.branches))

    def build(self, builder: Builder[M], data: Map) -> M:
        return builder.concat({name: branch.build(builder, data) for name, branch in self.branches})


def add_maps(data: Map, other: Map) -> Map:
    """Return the shape of the sum of two maps.

    Raises:
        ValueError: The two shapes differ.
    """
    if data != other:
        raise ValueError(f"maps of {data} and {other} cannot be added")
    return data


def concat_maps(*maps: Map) -> Map:
    """Return the shape of the concatenation of maps along their channels.

    Raises:
        ValueError: The maps differ in height or width.
    """
    sizes = {(data.height, data.width) for data in maps}
    if len(sizes) != 1:
        raise ValueError(f"maps of different sizes have no common channels: {maps}")
    return Map(sum(data.channels for data in maps), *sizes.pop())
