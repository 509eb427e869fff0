"""Execution of an operator over tiles, with its halo exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from spbench_core.layout.partition import EMPTY_BOX, Transfers
from spbench_core.layout.tiles import Box
from spbench_core.layout.window import Window2d
from spbench_parallel.spatial.exchange import is_channels_last, view_box
from spbench_parallel.spatial.gather_cache import GatherCache
from spbench_parallel.spatial.interior_split import InteriorSplit, find_input_of_own_tile
from spbench_parallel.spatial.tiling import Tiling

LocalFunction = Callable[[torch.Tensor, tuple[int, int], Box], torch.Tensor]
"""Computes a box of outputs from all pixels that they read. Arguments: the pixels, the rows and
columns of padding that the operator adds, and the box. It must not change the pixels."""


@dataclass(frozen=True, slots=True)
class LocalOperator:
    """An operator with a window, applied to pixels with their halos.

    Attributes:
        local: Computes a box of its outputs.
        output_channels: Channels of the output.
        parameters: Further tensors that the outputs depend on. A rank without outputs gives them
            zero gradients.
    """

    local: LocalFunction
    output_channels: int
    parameters: Sequence[torch.Tensor]


class TiledExecution:
    """One execution of an operator over tiles: its output split and its halo gathers.

    Args:
        tiling: The tiles of the input.
        window: The operator's window.
        split: The split of this rank's outputs.
        halo: The pixels that each rank needs.
        fill: The value outside the image.

    Attributes:
        split: The split of this rank's outputs.
        gathers: The gathers of the pixels that the strips read.
    """

    def __init__(
        self,
        tiling: Tiling,
        window: Window2d,
        split: InteriorSplit,
        halo: Transfers,
        fill: float,
    ) -> None:
        self.split = split
        self.gathers = GatherCache(tiling, halo, split.strip_inputs, fill, owns_gradients=True)
        self._window = window
        self._tile = tiling.tile
        self._bands = split.cut_bands(window)

    def run(self, tile: torch.Tensor, operator: LocalOperator, *, overlap: bool) -> torch.Tensor:
        """Return this rank's outputs.

        With ``overlap`` the inner outputs are computed while the halos travel.
        """
        gather = self.gathers.get(tile)
        pending = gather.start(tile)
        if overlap:
            inner_outputs = self._compute_inner(
                pending.tile, operator.local, gather.forward.progress
            )
            return self._join_outputs(tile, inner_outputs, gather.finish(pending), operator)
        return self.compute(pending.tile, gather.finish(pending), operator)

    def run_without_halo(self, tile: torch.Tensor, operator: LocalOperator) -> torch.Tensor:
        """Return this rank's outputs if no rank reads pixels beyond its own tile."""
        read_box = find_input_of_own_tile(self._window, self.split, self._tile)
        pixels = (
            tile if read_box in (self._tile, EMPTY_BOX) else view_box(tile, self._tile, read_box)
        )
        return self._join_outputs(tile, (), [pixels], operator)

    def compute(
        self, tile: torch.Tensor, strip_pixels: Sequence[torch.Tensor], operator: LocalOperator
    ) -> torch.Tensor:
        """Return this rank's outputs from its tile and the pixels that the strips read."""
        return self._join_outputs(
            tile, self._compute_inner(tile, operator.local), strip_pixels, operator
        )

    def _compute_inner(
        self,
        tile: torch.Tensor,
        local: LocalFunction,
        progress: Callable[[], object] = lambda: None,
    ) -> Sequence[torch.Tensor]:
        """Return the outputs that need no halo, band by band; empty if there are none."""
        band_outputs = []
        # Between two bands MPI can make progress on the halos.
        for band in self._bands:
            band_pixels = view_box(tile, self._tile, band.input_box)
            band_outputs.append(local(band_pixels, self.split.inner_padding, band.output_box))
            progress()
        return band_outputs

    def _join_outputs(
        self,
        tile: torch.Tensor,
        inner_outputs: Sequence[torch.Tensor],
        strip_pixels: Sequence[torch.Tensor],
        operator: LocalOperator,
    ) -> torch.Tensor:
        """Return all outputs: the inner ones and the strips, computed from the parts."""
        split = self.split
        if split.outputs.empty:
            shape = (tile.shape[0], operator.output_channels, *split.outputs.shape)
            return make_empty_output(shape, tile, *strip_pixels, *operator.parameters)
        strip_outputs = [
            operator.local(part, split.strip_padding, strip)
            for part, strip in zip(strip_pixels, split.strips, strict=True)
        ]
        boxes = [*(band.output_box for band in self._bands), *split.strips]
        return _join_boxes(split.outputs, boxes, [*inner_outputs, *strip_outputs])


def make_empty_output(shape: tuple[int, ...], *inputs: torch.Tensor) -> torch.Tensor:
    """Return an empty tensor that depends on the inputs, with zero gradients for them."""
    output: torch.Tensor = _EmptyOutput.apply(shape, *inputs)
    return output


def _join_boxes(
    joined_box: Box, boxes: Sequence[Box], pieces: Sequence[torch.Tensor]
) -> torch.Tensor:
    if len(pieces) == 1:
        return pieces[0]
    joined: torch.Tensor = _JoinBoxes.apply(joined_box, boxes, *pieces)
    return joined


class _JoinBoxes(Function):
    """Join boxes of outputs; backward each box gets its part of the gradient."""

    @staticmethod
    def forward(
        ctx: Any, joined_box: Box, boxes: Sequence[Box], *pieces: torch.Tensor
    ) -> torch.Tensor:
        ctx.joined_box = joined_box
        ctx.boxes = boxes
        first_piece = pieces[0]
        layout = torch.channels_last if is_channels_last(first_piece) else torch.contiguous_format
        joined = torch.empty(
            (*first_piece.shape[:2], joined_box.height, joined_box.width),
            dtype=first_piece.dtype,
            device=first_piece.device,
            memory_format=layout,
        )
        for box, piece in zip(boxes, pieces, strict=True):
            view_box(joined, joined_box, box).copy_(piece)
        return joined

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, None, *(view_box(gradient, ctx.joined_box, box) for box in ctx.boxes)


class _EmptyOutput(Function):
    """An empty output with zero gradients.

    A rank without a tile uses it to take part in all exchanges.
    """

    @staticmethod
    def forward(ctx: Any, shape: tuple[int, ...], *inputs: torch.Tensor) -> torch.Tensor:
        ctx.inputs = [tensor.detach() for tensor in inputs]
        return inputs[0].new_empty(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        return None, *(torch.zeros_like(tensor) for tensor in ctx.inputs)
