"""Routes of tensors between the stages of a model.

A tensor is sent from the stage that makes it to the next stage that reads it, from there to the
next one, and so on. Most tensors are read by the following stage. If stages in between do not read
it, like with the skip connections of a U-Net, it is sent directly or through these stages.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spbench_core.models.layers import Flow, Model
from spbench_core.models.parts import MapShape

LayerRange = tuple[int, int]
"""The layers of a stage: the first, and one past the last."""


@dataclass(frozen=True, slots=True)
class Route:
    """The tensors that a stage sends to a later one, in one message per micro-batch.

    Attributes:
        source: The stage that sends them.
        target: The stage that receives them.
        tensors: Their numbers, ascending.
    """

    source: int
    target: int
    tensors: tuple[int, ...]

    @property
    def stages_passed(self) -> int:
        """The number of stages between source and target."""
        return self.target - self.source - 1


@dataclass(frozen=True, slots=True)
class TensorTable:
    """The tensors of a model, numbered in their order; the image is 0.

    Attributes:
        shapes: Their shapes.
        makers: The layer that makes each tensor; 0 for the image.
        readers: The layers that read each tensor, ascending.
        layer_inputs: The numbers of each layer's inputs, and finally of the last layer's outputs.
    """

    shapes: tuple[MapShape, ...]
    makers: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    layer_inputs: tuple[tuple[int, ...], ...]

    def select_flow(self, numbers: Sequence[int]) -> Flow:
        """Return the shapes of some tensors."""
        return tuple(self.shapes[number] for number in numbers)


def build_tensor_table(model: Model) -> TensorTable:
    """Return the tensors between all layers of a model."""
    shapes: list[MapShape] = [model.image]
    makers = [0]
    readers = [list[int]()]
    layer_inputs: list[tuple[int, ...]] = [(0,)]
    for layer_index, (layer, flow) in enumerate(zip(model.layers, model.flows[1:], strict=True)):
        inputs = layer_inputs[-1]
        for index in layer.list_read_inputs(len(inputs)):
            readers[inputs[index]].append(layer_index)

        outputs: list[int] = []
        for shape, passed_input in zip(flow, layer.list_passed_inputs(len(flow)), strict=True):
            if passed_input is not None:
                outputs.append(inputs[passed_input])
                continue
            outputs.append(len(shapes))
            shapes.append(shape)
            makers.append(layer_index)
            readers.append([])
        layer_inputs.append(tuple(outputs))
    return TensorTable(
        tuple(shapes), tuple(makers), tuple(map(tuple, readers)), tuple(layer_inputs)
    )


@dataclass(frozen=True, slots=True)
class StageRoutes:
    """The routes between the stages of a model.

    Attributes:
        table: The model's tensors.
        stages: The layers of each stage.
        routes: The routes, sorted by source and target.
    """

    table: TensorTable
    stages: tuple[LayerRange, ...]
    routes: tuple[Route, ...]

    def list_incoming(self, stage: int) -> tuple[Route, ...]:
        """Return the routes to a stage, from the nearest source to the most distant one."""
        return tuple(route for route in reversed(self.routes) if route.target == stage)

    def list_outgoing(self, stage: int) -> tuple[Route, ...]:
        """Return the routes from a stage, from the nearest target to the most distant one."""
        return tuple(route for route in self.routes if route.source == stage)

    def list_inputs(self, stage: int) -> tuple[int, ...]:
        """Return the tensors that a stage receives, ascending; the image for 0."""
        return _list_tensors(self.list_incoming(stage)) if stage else (0,)

    def list_outputs(self, stage: int) -> tuple[int, ...]:
        """Return the tensors that a stage sends, ascending; the last stage sends none."""
        return _list_tensors(self.list_outgoing(stage))

    def find_bypassing(self, stage: int) -> set[int]:
        """Return the tensors that bypass a stage."""
        return set(self.table.layer_inputs[self.stages[stage][0]]).difference(
            self.list_inputs(stage)
        )

    @property
    def skips(self) -> tuple[Route, ...]:
        """The routes between stages that are not adjacent."""
        return tuple(route for route in self.routes if route.stages_passed)


def find_routes(
    table: TensorTable, stages: Sequence[LayerRange], direct: Container[tuple[int, int]] | None
) -> StageRoutes:
    """Return the routes between stages.

    Args:
        table: The model's tensors.
        stages: The layers of each stage.
        direct: The pairs of source and target stages that exchange tensors directly, instead of
            through the stages in between; None: all pairs.
    """
    layer_stages = [stage for stage, (first, last) in enumerate(stages) for _ in range(first, last)]
    tensors_by_hop: dict[tuple[int, int], list[int]] = {}
    for tensor, (maker, readers) in enumerate(zip(table.makers, table.readers, strict=True)):
        using_stages = dict.fromkeys(layer_stages[layer] for layer in (maker, *readers))
        for stage_pair in pairwise(using_stages):
            is_direct = direct is None or stage_pair in direct
            source, target = stage_pair
            hops = [stage_pair] if is_direct else pairwise(range(source, target + 1))
            for hop in hops:
                tensors_by_hop.setdefault(hop, []).append(tensor)
    routes = tuple(Route(*hop, tuple(tensors_by_hop[hop])) for hop in sorted(tensors_by_hop))
    return StageRoutes(table, tuple(stages), routes)


def _list_tensors(routes: Sequence[Route]) -> tuple[int, ...]:
    return tuple(sorted(tensor for route in routes for tensor in route.tensors))
