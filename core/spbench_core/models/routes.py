"""Routes of tensors between the stages of a model: which stage gets what, and from which.

A tensor goes from the stage that makes it to the next one that reads it, from there to the next,
and so on. Most are read by the stage right behind. Where stages lie between that do not read it, as
with the skip connections of a U-Net, it goes straight past them, or is passed along by them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spbench_core.models.layers import Flow, Model
from spbench_core.models.parts import Map

LayerRange = tuple[int, int]
"""The layers of a stage: the first, and one past the last."""


@dataclass(frozen=True, slots=True)
class Route:
    """The tensors that go from one stage to a later one, in one message for each micro-batch.

    Attributes:
        source: The stage that sends them.
        target: The stage that receives them.
        tensors: Their numbers, rising.
    """

    source: int
    target: int
    tensors: tuple[int, ...]

    @property
    def stages_passed(self) -> int:
        """The number of stages that it passes."""
        return self.target - self.source - 1


@dataclass(frozen=True, slots=True)
class TensorTable:
    """The tensors of a model, numbered in the order in which they are made; the image is 0.

    Attributes:
        maps: Their shapes.
        makers: The layer that makes each; 0 for the image.
        readers: The layers that read each, rising.
        alive: By layer, the numbers of its inputs; after them those of the last one's output.
    """

    maps: tuple[Map, ...]
    makers: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    layer_inputs: tuple[tuple[int, ...], ...]

    def select_flow(self, numbers: Sequence[int]) -> Flow:
        """Return the shapes of some tensors."""
        return tuple(self.maps[number] for number in numbers)


def build_tensor_table(model: Model) -> TensorTable:
    """Return the tensors of a model, over all of its layers."""
    maps: list[Map] = [model.image]
    makers = [0]
    readers = [list[int]()]
    alive: list[tuple[int, ...]] = [(0,)]
    for index, (layer, flow) in enumerate(zip(model.layers, model.flows[1:], strict=True)):
        inputs = alive[-1]
        for at in layer.list_read_inputs(len(inputs)):
            readers[inputs[at]].append(index)
        outputs: list[int] = []
        for data, place in zip(flow, layer.list_passed_inputs(len(flow)), strict=True):
            if place is not None:
                outputs.append(inputs[place])
                continue
            outputs.append(len(maps))
            maps.append(data)
            makers.append(index)
            readers.append([])
        alive.append(tuple(outputs))
    return TensorTable(tuple(maps), tuple(makers), tuple(map(tuple, readers)), tuple(alive))


@dataclass(frozen=True, slots=True)
class StageRoutes:
    """The routes between the stages of a model.

    Attributes:
        table: The model's tensors.
        stages: The layers of each stage.
        routes: The routes, by their source and target.
    """

    table: TensorTable
    stages: tuple[LayerRange, ...]
    routes: tuple[Route, ...]

    def list_incoming(self, stage: int) -> tuple[Route, ...]:
        """Return the routes to a stage: that of the stage before it first, then from nearest on."""
        return tuple(route for route in reversed(self.routes) if route.target == stage)

    def list_outgoing(self, stage: int) -> tuple[Route, ...]:
        """Return the routes from a stage: that to the next one first, then to nearest on."""
        return tuple(route for route in self.routes if route.source == stage)

    def list_inputs(self, stage: int) -> tuple[int, ...]:
        """Return the tensors that a stage gets, rising; the image, if it is the first."""
        return _numbers(self.list_incoming(stage)) if stage else (0,)

    def list_outputs(self, stage: int) -> tuple[int, ...]:
        """Return the tensors that a stage sends, rising; none of the last stage."""
        return _numbers(self.list_outgoing(stage))

    def find_bypassing(self, stage: int) -> set[int]:
        """Return the tensors that go past a stage."""
        return set(self.table.layer_inputs[self.stages[stage][0]]).difference(
            self.list_inputs(stage)
        )

    @property
    def skips(self) -> tuple[Route, ...]:
        """The routes that pass stages."""
        return tuple(route for route in self.routes if route.stages_passed)


def find_routes(
    table: TensorTable, stages: Sequence[LayerRange], direct: Container[tuple[int, int]] | None
) -> StageRoutes:
    """Return the routes between stages.

    Args:
        table: The model's tensors.
        stages: The layers of each stage.
        direct: The stages, source and target, between which tensors go straight past others,
            in place of being passed along; None: all do.
    """
    stage_of = [at for at, (first, last) in enumerate(stages) for _ in range(first, last)]
    found: dict[tuple[int, int], list[int]] = {}
    for number, (maker, readers) in enumerate(zip(table.makers, table.readers, strict=True)):
        holders = dict.fromkeys(stage_of[layer] for layer in (maker, *readers))
        for ends in pairwise(holders):
            past = direct is None or ends in direct
            for way in [ends] if past else pairwise(range(ends[0], ends[1] + 1)):
                found.setdefault(way, []).append(number)
    routes = tuple(Route(*way, tuple(found[way])) for way in sorted(found))
    return StageRoutes(table, tuple(stages), routes)


def _numbers(routes: Sequence[Route]) -> tuple[int, ...]:
    return tuple(sorted(number for route in routes for number in route.tensors))
