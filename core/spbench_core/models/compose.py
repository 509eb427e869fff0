"""Parts made of other parts: chains, residual blocks and concatenations."""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.models.parts import Builder, M, MapShape, Part


@dataclass(frozen=True, slots=True)
class Chain(Part):
    """Named parts that run one after the other."""

    steps: tuple[tuple[str, Part], ...]

    def output(self, shape: MapShape) -> MapShape:
        for _, part in self.steps:
            shape = part.output(shape)
        return shape

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        steps = {}
        for name, part in self.steps:
            steps[name] = part.build(builder, shape)
            shape = part.output(shape)
        return builder.chain(steps)


def make_chain(**steps: Part) -> Chain:
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

    def output(self, shape: MapShape) -> MapShape:
        return require_equal_shapes(self.main.output(shape), self.shortcut.output(shape))

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        main = self.main.build(builder, shape)
        shortcut = self.shortcut.build(builder, shape)
        return builder.residual(main, shortcut, self.relu)


@dataclass(frozen=True, slots=True)
class Concat(Part):
    """Named branches from one map; their output channels are concatenated."""

    branches: tuple[tuple[str, Part], ...]

    def output(self, shape: MapShape) -> MapShape:
        return concat_shapes(*(branch.output(shape) for _, branch in self.branches))

    def build(self, builder: Builder[M], shape: MapShape) -> M:
        return builder.concat(
            {name: branch.build(builder, shape) for name, branch in self.branches}
        )


def require_equal_shapes(shape: MapShape, other: MapShape) -> MapShape:
    """Return the shape of the sum of two maps, which is the shape of both.

    Raises:
        ValueError: The two shapes differ.
    """
    if shape != other:
        raise ValueError(f"maps of {shape} and {other} cannot be added")
    return shape


def concat_shapes(*shapes: MapShape) -> MapShape:
    """Return the shape of the concatenation of maps along their channels.

    Raises:
        ValueError: The maps differ in height or width.
    """
    sizes = {(shape.height, shape.width) for shape in shapes}
    if len(sizes) != 1:
        shape_list = ", ".join(map(str, shapes))
        raise ValueError(f"maps of different sizes cannot be concatenated: {shape_list}")
    return MapShape(sum(shape.channels for shape in shapes), *sizes.pop())
