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
    compute_input_transfers,
    compute_value_boxes,
    cut_input,
    find_freeable_values,
)
from spbench_parallel.spatial.fused.tracing import trace_operators
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
        input_transfers: For each input, the transfers of pixels between ranks.

    Raises:
        TypeError: An operator cannot be fused.
        ValueError: An operator was created for other tiles than it gets.
    """

    def __init__(self, layers: Mapping[str, nn.Module], tilings: Sequence[Tiling]) -> None:
        self.graph, self._operators = trace_operators(layers, tilings)
        self.input_transfers = compute_input_transfers(self.graph)
        self._tilings = tuple(tilings)
        self._input_count = len(tilings)
        self._comm = tilings[0].comm
        self._input_is_exchanged = tuple(
            any(transfers.list_received(rank) for rank in range(self._comm.size))
            for transfers in self.input_transfers
        )
        self._box_by_value = self._keep_unexchanged_tiles(
            compute_value_boxes(self.graph, self._comm.rank)
        )
        self._cut_by_step = tuple(
            self._make_input_cut(step_index) for step_index in range(len(self._operators))
        )
        self._freeable_after_step = find_freeable_values(self.graph)
        input_properties = zip(
            self._tilings,
            self.input_transfers,
            self._box_by_value[: self._input_count],
            strict=True,
        )
        self._gathers = [
            GatherCache(tiling, transfers, [box]) for tiling, transfers, box in input_properties
        ]

    def __call__(self, *tiles: torch.Tensor) -> TensorTuple:
        """Return this rank's tiles of the outputs.

        Raises:
            ValueError: A tile does not have the shape of this rank's tile in its tiling.
        """
        pending = [self._start_gather(input_index, tile) for input_index, tile in enumerate(tiles)]
        # After the start, so that backward sums over the tiles while gradients of halos travel.
        parameters_by_step = self._share_parameters()
        tensor_by_value = {
            input_index: self._finish_gather(input_index, gather)
            for input_index, gather in enumerate(pending)
        }
        for step_index in range(len(self._operators)):
            tensor_by_value[self._input_count + step_index] = self._compute_step(
                step_index, tensor_by_value, parameters_by_step.get(step_index, ())
            )
            for value in self._freeable_after_step[step_index]:
                del tensor_by_value[value]
        return tuple(
            self._crop_to_tile(value, tensor_by_value[value]) for value in self.graph.output_indices
        )

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        for cache in self._gathers:
            cache.free()

    @property
    def gathers(self) -> list[Gather]:
        """The halo gathers created so far."""
        return [gather for cache in self._gathers for gather in cache]

    def _keep_unexchanged_tiles(self, needed_boxes: tuple[Box, ...]) -> tuple[Box, ...]:
        """Return the box of each value; an input without exchange keeps its tile."""
        input_properties = zip(
            needed_boxes[: self._input_count], self._input_is_exchanged, self._tilings, strict=True
        )
        boxes = (box if exchanged else tiling.tile for box, exchanged, tiling in input_properties)
        return *boxes, *needed_boxes[self._input_count :]

    def _make_input_cut(self, step_index: int) -> InputCut | None:
        """Return the cut of a step's input; None without a window or outputs."""
        step = self.graph.steps[step_index]
        output_box = self._box_by_value[self._input_count + step_index]
        if step.window is None or output_box.empty:
            return None
        return cut_input(step.window, self.graph.value_tiles[step.input_indices[0]], output_box)

    def _start_gather(self, input_index: int, tile: torch.Tensor) -> torch.Tensor | PendingGather:
        check_tile(self._tilings[input_index], tile)
        if not self._input_is_exchanged[input_index]:
            return tile
        return self._gathers[input_index].get(tile).start(tile)

    def _finish_gather(
        self, input_index: int, pending: torch.Tensor | PendingGather
    ) -> torch.Tensor:
        if isinstance(pending, torch.Tensor):
            return pending
        (pixels,) = self._gathers[input_index].get(pending.tile).finish(pending)
        return pixels

    def _share_parameters(self) -> dict[int, TensorTuple]:
        """Return the convolutions' parameters, by step."""
        parameters_by_step = {
            step_index: (operator.weight,)
            if operator.bias is None
            else (operator.weight, operator.bias)
            for step_index, operator in enumerate(self._operators)
            if isinstance(operator, SpatialConv2d)
        }
        if not parameters_by_step:
            return {}
        all_parameters = [
            parameter
            for step_parameters in parameters_by_step.values()
            for parameter in step_parameters
        ]
        shared = iter(share_parameters(self._comm, all_parameters))
        return {
            step_index: tuple(next(shared) for _ in step_parameters)
            for step_index, step_parameters in parameters_by_step.items()
        }

    def _compute_step(
        self, step_index: int, tensor_by_value: Mapping[int, torch.Tensor], parameters: TensorTuple
    ) -> torch.Tensor:
        """Return the output of a step."""
        operator: Any = self._operators[step_index]
        step = self.graph.steps[step_index]
        output_box = self._box_by_value[self._input_count + step_index]
        if step.window is not None:
            return self._compute_windowed(
                step_index, tensor_by_value[step.input_indices[0]], parameters
            )
        inputs = [
            _crop(tensor_by_value[value], self._box_by_value[value], output_box)
            for value in step.input_indices
        ]
        output: torch.Tensor
        if step.statistics:
            output = operator.normalise(inputs[0], output_box)
        elif operator is torch.cat:
            output = torch.cat(inputs, dim=1)
        else:
            output = operator(*inputs)
        return output

    def _compute_windowed(
        self, step_index: int, pixels: torch.Tensor, parameters: TensorTuple
    ) -> torch.Tensor:
        operator: Any = self._operators[step_index]
        cut = self._cut_by_step[step_index]
        output_box = self._box_by_value[self._input_count + step_index]
        if cut is None:
            channels = operator.out_channels if parameters else pixels.shape[1]
            return make_empty_output((pixels.shape[0], channels, 0, 0), pixels, *parameters)
        (input_index,) = self.graph.steps[step_index].input_indices
        pixels = _crop(pixels, self._box_by_value[input_index], cut.box)
        if any(cut.uneven_padding):
            pixels = pad(pixels, cut.uneven_padding, value=operator.fill)
        output: torch.Tensor = operator.local(pixels, cut.padding, *(parameters or (output_box,)))
        return output

    def _crop_to_tile(self, value: int, pixels: torch.Tensor) -> torch.Tensor:
        tile = self.graph.value_tiles[value].tile(self._comm.rank)
        if tile.empty:
            return make_empty_output((*pixels.shape[:2], *tile.shape), pixels)
        return _crop(pixels, self._box_by_value[value], tile)


def _crop(pixels: torch.Tensor, origin: Box, box: Box) -> torch.Tensor:
    if box == origin:
        return pixels
    return pixels[:, :, :0, :0] if box.empty else view_box(pixels, origin, box)
