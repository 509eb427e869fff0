"""Fused blocks: one wide halo exchange for several layers, and no other until their outputs.

A rank gathers all pixels that its outputs of the last layer depend on, and computes every layer on
them: the halos of the inner layers too, which a neighbour computes as well. That saves messages,
and costs the pixels computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from spbench_core.layout.tiles import Box
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.execution import make_empty_output
from spbench_parallel.spatial.fused.boundary_fill import PIXELWISE, fill_outside, find_fills
from spbench_parallel.spatial.fused.chain import (
    ChainLayer,
    chain_boxes,
    chain_transfers,
    redundant_share,
)
from spbench_parallel.spatial.gather import Gather, GatherCache
from spbench_parallel.spatial.interior_split import strips_outside
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_parallel.spatial.tiling import Tiling

WINDOWED = (SpatialConv2d, SpatialMaxPool2d, SpatialAvgPool2d)


class FusedBlock(nn.Sequential):
    """Fused layers in a row, with one halo exchange; equal to the same layers without fusion.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. The names of the
    parameters are those of `torch.nn.Sequential`. All ranks must call forward, and backward, in the
    same order.

    Args:
        layers: Spatial convolutions, pools and batch norms, each made for the tiling that the one
            before it puts out, and modules of `PIXELWISE`.
        tiling: The tiles of the input.

    Attributes:
        output: The tiles of the output.
        redundant_share: How much more the ranks compute than they own: 0.1 is a tenth more.
        gathers: What gathers the halos.

    Raises:
        TypeError: A layer is none of these.
        ValueError: No layer has a window, or one was made for other tiles than it gets.
    """

    def __init__(self, layers: Sequence[nn.Module], tiling: Tiling) -> None:
        super().__init__(*layers)
        self.tiling = tiling
        self._links, self.output = _chain(layers, tiling)
        rank = tiling.comm.rank
        produced = self.output.partition
        self.redundant_share = redundant_share(self._links, produced)
        self._boxes = chain_boxes(self._links, produced, rank)
        self._fills = find_fills(layers)
        table = chain_transfers(self._links, produced)
        self.gathers = GatherCache(tiling, table, self._boxes[:1], self._fills.pop(0, 0.0))

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output.

        Raises:
            ValueError: The tile does not have the shape of this rank's tile in the tiling.
        """
        check_tile(self.tiling, tile)
        shared = [
            layer.shared_parameters() if isinstance(layer, SpatialConv2d) else () for layer in self
        ]
        gather = self.gathers.get(tile)
        (pixels,) = gather.finish(gather.start(tile))
        held = self._boxes[0]
        for index, parameters in enumerate(shared):
            pixels = self._cleared(index, pixels, held)
            pixels = _crop(pixels, held, self._boxes[index])
            pixels, held = self._computed(index, pixels, parameters)
        return _crop(pixels, held, self._boxes[-1])

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        self.gathers.free()

    def _cleared(self, index: int, pixels: torch.Tensor, held: Box) -> torch.Tensor:
        """Return the input of a layer with its boundary fill, where it has one."""
        if index not in self._fills:
            return pixels
        strips = strips_outside(held, self._links[index].owned.image)
        if strips and isinstance(self[index - 1], PIXELWISE):
            # The layer before may need its outputs for backward.
            pixels = pixels.clone()
        return fill_outside(pixels, held, strips, self._fills[index])

    def _computed(
        self, index: int, pixels: torch.Tensor, parameters: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, Box]:
        """Return the outputs of a layer, and their box."""
        layer: Any = self[index]
        before, after = self._boxes[index : index + 2]
        if isinstance(layer, PIXELWISE):
            return layer(pixels), before
        if isinstance(layer, SpatialBatchNorm2d):
            return layer.normalise(pixels, before), before
        if after.empty:
            channels = layer.out_channels if parameters else pixels.shape[1]
            shape = (pixels.shape[0], channels, after.height, after.width)
            return make_empty_output(shape, pixels, *parameters), after
        padding = self._links[index].padding
        if isinstance(layer, SpatialConv2d):
            return layer.local(pixels, padding, *parameters), after
        return layer.local(pixels, padding, after), after


class FusedSequential(nn.Sequential):
    """Fused blocks in a row, under the names that their layers have without fusion.

    Attributes:
        blocks: The blocks.
        output: The tiles of the output.
    """

    def __init__(self, blocks: Sequence[FusedBlock]) -> None:
        super().__init__(*(layer for block in blocks for layer in block))
        # A tuple: torch registers the layers, and not the blocks besides.
        self.blocks = tuple(blocks)
        self.output = self.blocks[-1].output

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output."""
        for block in self.blocks:
            tile = block(tile)
        return tile

    @property
    def gathers(self) -> list[Gather]:
        """The gathers of halos made so far."""
        return [gather for block in self.blocks for gather in block.gathers]

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        for block in self.blocks:
            block.free()


def fuse(layers: Sequence[nn.Module], tiling: Tiling, fused_layers: int) -> FusedSequential:
    """Return the layers in fused blocks.

    Args:
        layers: As `FusedBlock` takes them.
        tiling: The tiles of the input.
        fused_layers: Layers with a window in a block, at most; with 1 each exchanges on its own.
            A block ends before the next of them: pixelwise layers go with the last.

    Raises:
        TypeError: A layer is none that `FusedBlock` takes.
        ValueError: ``fused_layers`` is below 1, or above the number of layers with a window.
    """
    windowed = sum(isinstance(layer, WINDOWED) for layer in layers)
    if not 1 <= fused_layers <= windowed:
        raise ValueError(
            f"fused_layers is {fused_layers}; it must be from 1 to {windowed}, the number of "
            "layers with a window"
        )
    groups: list[list[nn.Module]] = [[]]
    for layer in layers:
        inside = sum(isinstance(one, WINDOWED) for one in groups[-1])
        if isinstance(layer, WINDOWED) and inside == fused_layers:
            groups.append([])
        groups[-1].append(layer)
    blocks: list[FusedBlock] = []
    for group in groups:
        blocks.append(FusedBlock(group, blocks[-1].output if blocks else tiling))
    return FusedSequential(blocks)


def _chain(layers: Sequence[nn.Module], tiling: Tiling) -> tuple[list[ChainLayer], Tiling]:
    """Return the layers' places, and the tiles of the last one's output."""
    links = []
    for index, layer in enumerate(layers):
        name = f"layer {index} ({type(layer).__name__})"
        made_for = tiling
        if isinstance(layer, WINDOWED):
            made_for = layer.tiled.tiling
            links.append(ChainLayer(tiling.partition, layer.window))
        elif isinstance(layer, SpatialBatchNorm2d):
            made_for = layer.tiling
            links.append(ChainLayer(tiling.partition, statistics=True))
        elif isinstance(layer, PIXELWISE):
            links.append(ChainLayer(tiling.partition))
        else:
            raise TypeError(
                f"{name} cannot be fused; it must be a spatial convolution, pool or batch norm, or "
                "a module without parameters that works on each value alone"
            )
        if made_for.partition != tiling.partition:
            raise ValueError(
                f"{name} was made for other tiles than it gets; give it the output of the layer "
                "before it as its tiling"
            )
        tiling = layer.output if isinstance(layer, WINDOWED) else tiling
    if not any(link.window for link in links):
        raise ValueError("no layer of the fused block has a window; give it one that has")
    return links, tiling


def _crop(pixels: torch.Tensor, held: Box, box: Box) -> torch.Tensor:
    return pixels if box == held else view_box(pixels, held, box)
