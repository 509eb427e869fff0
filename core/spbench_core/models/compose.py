"""Parts made of other parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spbench_core.models.parts import Kit, M, Map, Part


@dataclass(frozen=True, slots=True)
class Chain(Part):
    """Parts one after the other, each under a name of its own."""

    steps: tuple[tuple[str, Part], ...]

    def output(self, data: Map) -> Map:
        for _, part in self.steps:
            data = part.output(data)
        return data

    def build(self, kit: Kit[M], data: Map) -> M:
        made = {}
        for name, part in self.steps:
            made[name] = part.build(kit, data)
            data = part.output(data)
        return kit.chain(made)


def chain(**steps: Part) -> Chain:
    """Return these parts one after the other, under the names that they are given here."""
    return Chain(tuple(steps.items()))


@dataclass(frozen=True, slots=True)
class Residual(Part):
    """The sum of two ways from one map.

    Attributes:
        main: The longer way.
        shortcut: The shorter one.
        relu: Whether what is negative in the sum becomes 0.
    """

    main: Part
    shortcut: Part
    relu: bool = False

    def output(self, data: Map) -> Map:
        return same_shape(self.main.output(data), self.shortcut.output(data))

    def build(self, kit: Kit[M], data: Map) -> M:
        main, shortcut = self.main.build(kit, data), self.shortcut.build(kit, data)
        return kit.residual(main, shortcut, self.relu)


@dataclass(frozen=True, slots=True)
class Concat(Part):
    """Several ways from one map, one's channels after the other's, each under its name."""

    branches: tuple[tuple[str, Part], ...]

    def output(self, data: Map) -> Map:
        return concatenated(branch.output(data) for _, branch in self.branches)

    def build(self, kit: Kit[M], data: Map) -> M:
        return kit.concat({name: branch.build(kit, data) for name, branch in self.branches})


def same_shape(one: Map, other: Map) -> Map:
    """Return the shape of the sum of two maps.

    Raises:
        ValueError: They differ.
    """
    if one != other:
        raise ValueError(f"maps of {one} and {other} cannot be added")
    return one


def concatenated(maps: Iterator[Map]) -> Map:
    """Return the shape of maps with one's channels after the other's.

    Raises:
        ValueError: They differ in height or width.
    """
    found = tuple(maps)
    sizes = {(one.height, one.width) for one in found}
    if len(sizes) != 1:
        raise ValueError(f"maps of different sizes have no common channels: {found}")
    return Map(sum(one.channels for one in found), *sizes.pop())
