"""Operators with a window over tiles: halo exchange, interior first, and the join of outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from spbench_core.layout.tiles import Box
from spbench_core.layout.window import Window2d
from spbench_workers.spatial.exchange import view
from spbench_workers.spatial.gather import GatherCache
from spbench_workers.spatial.interior_split import halo_of, interior_split_of
from spbench_workers.spatial.tiling import Tiling

Local = Callable[[torch.Tensor, tuple[int, int], Box], torch.Tensor]
"""Computes a box of outputs from all pixels that they read: the pixels, the rows and columns that
the operator is to add around them, and the box. It must not change the pixels."""


class TiledWindow:
    """An operator with a window, run over tiles with the result of the operator on the whole image.

    Args:
        tiling: The tiles of the input.
        window: The operator's window.
        fill: The value of the pixels outside the image, for this operator.

    Attributes:
        gathers: What gathers the halos.

    Raises:
        ValueError: The window is larger than the padded image.
    """

    def __init__(self, tiling: Tiling, window: Window2d, fill: float = 0.0) -> None:
        self.tiling, self.window = tiling, window
        owned = tiling.partition
        self.output = tiling.resized(*window.outputs(owned.height, owned.width))
        produced = self.output.partition
        self.split = interior_split_of(window, owned, produced, tiling.comm.rank)
        self._bands = self.split.bands(window)
        parts = [window.need(strip) for strip in self.split.strips]
        self.gathers = GatherCache(tiling, halo_of(window, owned, produced), parts, fill)

    def run(
        self, tile: torch.Tensor, local: Local, channels: int, parameters: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Return this rank's outputs.

        Args:
            tile: This rank's tile, ``batch x channels x rows x cols``.
            local: The operator on pixels that have their halos.
            channels: Channels of the output.
            parameters: Further tensors that the outputs depend on; a rank without outputs gives
                them gradients of zero.

        Raises:
            ValueError: The tile does not have the shape of this rank's tile in the tiling.
        """
        check_tile(self.tiling, tile)
        inner, parts = self._inner_and_parts(tile, local)
        if self.split.outputs.empty:
            shape = (tile.shape[0], channels, *self.split.outputs.shape)
            return no_outputs(shape, tile, *parts, *parameters)
        return self.join(inner, parts, local)

    def _inner_and_parts(
        self, tile: torch.Tensor, local: Local
    ) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        if self.window.single:
            return self.inner(tile, local), ()
        gather = self.gathers.of(tile)
        flight = gather.start(tile)
        if self.tiling.overlap:
            inner = self.inner(flight.tile, local, gather.forward.progress)
            return inner, gather.finish(flight)
        parts = gather.finish(flight)
        return self.inner(flight.tile, local), parts

    def inner(
        self,
        tile: torch.Tensor,
        local: Local,
        progress: Callable[[], object] = lambda: None,
    ) -> Sequence[torch.Tensor]:
        """Return the outputs that need no halo, band by band; nothing where there are none."""
        pieces = []
        for band in self._bands:
            crop = view(tile, self.tiling.tile, band.crop)
            pieces.append(local(crop, self.split.padding, band.outputs))
            progress()
        return pieces

    def join(
        self, inner: Sequence[torch.Tensor], parts: Sequence[torch.Tensor], local: Local
    ) -> torch.Tensor:
        """Return all outputs: the inner ones, and those in strips, computed from the parts."""
        strips = self.split.strips
        outer = [local(part, (0, 0), strip) for part, strip in zip(parts, strips, strict=True)]
        boxes = [*(band.outputs for band in self._bands), *strips]
        return _join(self.split.outputs, boxes, [*inner, *outer])


class WholeImageOperator(nn.Module):
    """An operator over tiles whose output is the same on every rank.

    Args:
        tiling: The tiles of the input.

    Attributes:
        function: What it computes, and its gradient, of a tile and the tiling.
    """

    function: ClassVar[type[Function]]

    def __init__(self, *, tiling: Tiling) -> None:
        super().__init__()
        self.tiling = tiling

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return the output.

        Raises:
            ValueError: The tile has not the shape that the tiling says.
        """
        check_tile(self.tiling, tile)
        output: torch.Tensor = self.function.apply(tile, self.tiling)
        return output


def check_tile(tiling: Tiling, tile: torch.Tensor) -> None:
    """Refuse a tensor that is no tile of this rank.

    Raises:
        ValueError: The tensor does not have the shape of this rank's tile in the tiling.
    """
    box = tiling.tile
    if tile.dim() != 4 or tuple(tile.shape[2:]) != (box.height, box.width):
        partition = tiling.partition
        raise ValueError(
            f"rank {tiling.comm.rank} gave a tile of shape {tuple(tile.shape)}; its part "
            f"of {partition.height}x{partition.width} pixels is {box.height}x{box.width}"
        )


def no_outputs(shape: tuple[int, ...], *inputs: torch.Tensor) -> torch.Tensor:
    """Return an empty tensor that depends on the inputs; backward they get gradients of zero."""
    nothing: torch.Tensor = _Nothing.apply(shape, *inputs)
    return nothing


def _join(outputs: Box, boxes: Sequence[Box], pieces: Sequence[torch.Tensor]) -> torch.Tensor:
    if len(pieces) == 1:
        return pieces[0]
    joined: torch.Tensor = _Join.apply(outputs, boxes, *pieces)
    return joined


class _Join(Function):
    """The join of boxes of outputs; backward each gets its part of the gradient."""

    @staticmethod
    def forward(
        ctx: Any, outputs: Box, boxes: Sequence[Box], *pieces: torch.Tensor
    ) -> torch.Tensor:
        ctx.outputs, ctx.boxes = outputs, boxes
        first = pieces[0]
        last = first.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if last and not first.is_contiguous() else None
        joined = torch.empty(
            (*first.shape[:2], outputs.height, outputs.width),
            dtype=first.dtype,
            device=first.device,
            memory_format=layout or torch.contiguous_format,
        )
        for box, piece in zip(boxes, pieces, strict=True):
            view(joined, outputs, box).copy_(piece)
        return joined

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None, None, *(view(gradient, ctx.outputs, box) for box in ctx.boxes)


class _Nothing(Function):
    """An empty output with gradients of zero, for a rank without a tile, in all exchanges."""

    @staticmethod
    def forward(ctx: Any, shape: tuple[int, ...], *inputs: torch.Tensor) -> torch.Tensor:
        ctx.inputs = [tensor.detach() for tensor in inputs]
        return inputs[0].new_empty(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        return None, *(torch.zeros_like(tensor) for tensor in ctx.inputs)
