"""Fused graphs: layers of any form with one wide halo exchange per input.

A rank gathers all pixels that its outputs depend on, and runs every operator on them; see
`spbench_parallel.spatial.fused.graph`. A neighbour may compute the same pixels. Statistics use only
the pixels that each rank owns, so that no pixel counts twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad

from spbench_core.layout.tiles import Box
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.execution import make_empty_output
from spbench_parallel.spatial.fused.graph import (
    InputCut,
    cut_input,
    graph_boxes,
    graph_transfers,
    last_uses,
)
from spbench_parallel.spatial.fused.tracing import trace
from spbench_parallel.spatial.gather import Gather, PendingGather
from spbench_parallel.spatial.gather_cache import GatherCache
from spbench_parallel.spatial.gradients import share_parameters
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.tiling import Tiling
from spbench_parallel.tensors import TensorTuple


class FusedGraph:
    """Fused layers of any form with one halo exchange; equal to layers without fusion.

    Inputs and outputs are this rank's tiles, ``batch x channels x rows x cols``. The layers keep
    their parameters. The gradients of all their convolutions are summed over the tiles in one
    message. All ranks must call it, and backward, in the same order.

    Args:
        layers: By name: spatial convolutions, pools and batch norms, modules of `PIXELWISE`, and
            modules that combine them with `+` and `torch.cat`. The first layer takes one tensor per
            tiling: one, or a tuple of two.
        tilings: The tiles of each input.

    Attributes:
        graph: The graph of operators.
        tables: For each input, the transfers of pixels between ranks.

    Raises:
        TypeError: An operator cannot be fused.
        ValueError: An operator was created for other tiles than it gets.
    """

    def __init__(self, layers: Mapping[str, nn.Module], tilings: Sequence[Tiling]) -> None:
        self.graph, self._operators = trace(layers, tilings)
        self.tables = graph_transfers(self.graph)
        self._tilings = tuple(tilings)
        self._first = len(tilings)
        self._comm = tilings[0].comm
        self._exchanged = tuple(
            any(table.list_received(rank) for rank in range(self._comm.size))
            for table in self.tables
        )
        self._boxes = self._value_boxes(graph_boxes(self.graph, self._comm.rank))
        self._cuts = tuple(self._cut_step(index) for index in range(len(self._operators)))
        self._last_uses = last_uses(self.graph)
        inputs = zip(self._tilings, self.tables, self._boxes[: self._first], strict=True)
        self._gathers = [GatherCache(tiling, table, [box]) for tiling, table, box in inputs]

    def __call__(self, *tiles: torch.Tensor) -> TensorTuple:
        """Return this rank's tiles of the outputs.

        Raises:
            ValueError: A tile does not have the shape of this rank's tile in its tiling.
        """
        pending = [self._start(number, tile) for number, tile in enumerate(tiles)]
        # After the start, so that backward sums over the tiles while gradients of halos travel.
        parameters = self._parameters()
        values = {number: self._finish(number, gather) for number, gather in enumerate(pending)}
        for index in range(len(self._operators)):
            values[self._first + index] = self._compute_step(
                index, values, parameters.get(index, ())
            )
            for value in self._last_uses[index]:
                del values[value]
        return tuple(self._crop_result(value, values[value]) for value in self.graph.results)

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        for cache in self._gathers:
            cache.free()

    @property
    def gathers(self) -> list[Gather]:
        """The halo gathers created so far."""
        return [gather for cache in self._gathers for gather in cache]

    def _value_boxes(self, needed: tuple[Box, ...]) -> tuple[Box, ...]:
        """Return the box of each value; an input without exchange keeps its tile."""
        inputs = zip(needed[: self._first], self._exchanged, self._tilings, strict=True)
        boxes = (box if exchanged else tiling.tile for box, exchanged, tiling in inputs)
        return *boxes, *needed[self._first :]

    def _cut_step(self, index: int) -> InputCut | None:
        """Return the cut of a step's input; None without a window or outputs."""
        step = self.graph.steps[index]
        outputs = self._boxes[self._first + index]
        if step.window is None or outputs.empty:
            return None
        return cut_input(step.window, self.graph.values[step.reads[0]], outputs)

    def _start(self, number: int, tile: torch.Tensor) -> torch.Tensor | PendingGather:
        check_tile(self._tilings[number], tile)
        if not self._exchanged[number]:
            return tile
        return self._gathers[number].get(tile).start(tile)

    def _finish(self, number: int, pending: torch.Tensor | PendingGather) -> torch.Tensor:
        if isinstance(pending, torch.Tensor):
            return pending
        (pixels,) = self._gathers[number].get(pending.tile).finish(pending)
        return pixels

    def _parameters(self) -> dict[int, TensorTuple]:
        """Return the convolutions' parameters, by step."""
        parameters = {
            index: (operator.weight,) if operator.bias is None else (operator.weight, operator.bias)
            for index, operator in enumerate(self._operators)
            if isinstance(operator, SpatialConv2d)
        }
        if not parameters:
            return {}
        flat = [parameter for tensors in parameters.values() for parameter in tensors]
        shared = iter(share_parameters(self._comm, flat))
        return {
            index: tuple(next(shared) for _ in tensors) for index, tensors in parameters.items()
        }

    def _compute_step(
        self, index: int, values: Mapping[int, torch.Tensor], parameters: TensorTuple
    ) -> torch.Tensor:
        """Return the output of a step."""
        operator: Any = self._operators[index]
        step = self.graph.steps[index]
        box = self._boxes[self._first + index]
        if step.window is not None:
            return self._compute_windowed(index, values[step.reads[0]], parameters)
        pixels = [_crop(values[value], self._boxes[value], box) for value in step.reads]
        output: torch.Tensor
        if step.statistics:
            output = operator.normalise(pixels[0], box)
        elif operator is torch.cat:
            output = torch.cat(pixels, dim=1)
        else:
            output = operator(*pixels)
        return output

    def _compute_windowed(
        self, index: int, pixels: torch.Tensor, parameters: TensorTuple
    ) -> torch.Tensor:
        operator: Any = self._operators[index]
        cut = self._cuts[index]
        outputs = self._boxes[self._first + index]
        if cut is None:
            channels = operator.out_channels if parameters else pixels.shape[1]
            return make_empty_output((pixels.shape[0], channels, 0, 0), pixels, *parameters)
        (read,) = self.graph.steps[index].reads
        pixels = _crop(pixels, self._boxes[read], cut.box)
        if any(cut.uneven_padding):
            pixels = pad(pixels, cut.uneven_padding, value=operator.fill)
        result: torch.Tensor = operator.local(pixels, cut.padding, *(parameters or (outputs,)))
        return result

    def _crop_result(self, value: int, pixels: torch.Tensor) -> torch.Tensor:
        tile = self.graph.values[value].tile(self._comm.rank)
        if tile.empty:
            return make_empty_output((*pixels.shape[:2], *tile.shape), pixels)
        return _crop(pixels, self._boxes[value], tile)


def _crop(pixels: torch.Tensor, origin: Box, box: Box) -> torch.Tensor:
    if box == origin:
        return pixels
    return pixels[:, :, :0, :0] if box.empty else view_box(pixels, origin, box)
