"""Fused blocks: one wide halo exchange for several layers.

A rank gathers all pixels that its outputs of the last layer depend on, and computes every layer on
them. That includes halos of inner layers, which a neighbour computes too. It saves messages, at the
cost of pixels that are computed twice.
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
    compute_chain_boxes,
    compute_chain_transfers,
    compute_redundant_share,
)
from spbench_parallel.spatial.gather import Gather
from spbench_parallel.spatial.gather_cache import GatherCache
from spbench_parallel.spatial.interior_split import strips_outside
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.operator import check_tile
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_parallel.spatial.tiling import Tiling

WINDOWED = (SpatialConv2d, SpatialMaxPool2d, SpatialAvgPool2d)


class FusedBlock(nn.Sequential):
    """A sequence of layers with one halo exchange, equal to the layers without fusion.

    Input and output are this rank's tiles, ``batch x channels x rows x cols``. The parameters have
    the names that they have in `torch.nn.Sequential`. All ranks must call forward and backward in
    the same order.

    Args:
        layers: Spatial convolutions, pools and batch norms, and modules of `PIXELWISE`. Each must
            be created for the output tiling of the layer before it.
        tiling: The tiles of the input.

    Attributes:
        output: The tiles of the output.
        redundant_share: The redundant computation: 0.1 is a tenth more than the ranks own.
        gathers: The gathers of the halos.

    Raises:
        TypeError: A layer has another type.
        ValueError: No layer has a window, or a layer was created for other tiles.
    """

    def __init__(self, layers: Sequence[nn.Module], tiling: Tiling) -> None:
        super().__init__(*layers)
        self.tiling = tiling
        self._chain, self.output = _make_chain(layers, tiling)
        rank = tiling.comm.rank
        output_tiles = self.output.partition
        self.redundant_share = compute_redundant_share(self._chain, output_tiles)
        self._boxes = compute_chain_boxes(self._chain, output_tiles, rank)
        self._fill_by_layer = find_fills(layers)
        transfers = compute_chain_transfers(self._chain, output_tiles)
        self.gathers = GatherCache(
            tiling, transfers, self._boxes[:1], self._fill_by_layer.pop(0, 0.0)
        )

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output.

        Raises:
            ValueError: The tile does not have the shape of this rank's tile in the tiling.
        """
        check_tile(self.tiling, tile)
        parameters_by_layer = [
            layer.shared_parameters() if isinstance(layer, SpatialConv2d) else () for layer in self
        ]
        gather = self.gathers.get(tile)
        (pixels,) = gather.finish(gather.start(tile))
        box = self._boxes[0]
        for index, parameters in enumerate(parameters_by_layer):
            pixels = self._fill_boundary(index, pixels, box)
            pixels = _crop(pixels, box, self._boxes[index])
            pixels, box = self._compute_layer(index, pixels, parameters)
        return _crop(pixels, box, self._boxes[-1])

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        self.gathers.free()

    def _fill_boundary(self, index: int, pixels: torch.Tensor, box: Box) -> torch.Tensor:
        """Return the input of a layer with its boundary fill, if it has one."""
        if index not in self._fill_by_layer:
            return pixels
        strips = strips_outside(box, self._chain[index].input_tiles.image)
        if strips and isinstance(self[index - 1], PIXELWISE):
            # The previous layer may need its outputs unchanged for backward.
            pixels = pixels.clone()
        return fill_outside(pixels, box, strips, self._fill_by_layer[index])

    def _compute_layer(
        self, index: int, pixels: torch.Tensor, parameters: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, Box]:
        """Return the outputs of a layer, and their box."""
        layer: Any = self[index]
        input_box, output_box = self._boxes[index : index + 2]
        if isinstance(layer, PIXELWISE):
            return layer(pixels), input_box
        if isinstance(layer, SpatialBatchNorm2d):
            return layer.normalise(pixels, input_box), input_box
        if output_box.empty:
            channels = layer.out_channels if parameters else pixels.shape[1]
            shape = (pixels.shape[0], channels, output_box.height, output_box.width)
            return make_empty_output(shape, pixels, *parameters), output_box
        padding = self._chain[index].padding
        if isinstance(layer, SpatialConv2d):
            return layer.local(pixels, padding, *parameters), output_box
        return layer.local(pixels, padding, output_box), output_box


class FusedSequential(nn.Sequential):
    """A sequence of fused blocks; layers have the names that they have without fusion.

    Attributes:
        blocks: The blocks.
        output: The tiles of the output.
    """

    def __init__(self, blocks: Sequence[FusedBlock]) -> None:
        super().__init__(*(layer for block in blocks for layer in block))
        # A tuple, so that torch registers the layers but not the blocks.
        self.blocks = tuple(blocks)
        self.output = self.blocks[-1].output

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return this rank's tile of the output."""
        for block in self.blocks:
            tile = block(tile)
        return tile

    @property
    def gathers(self) -> list[Gather]:
        """The halo gathers created so far."""
        return [gather for block in self.blocks for gather in block.gathers]

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        for block in self.blocks:
            block.free()


def fuse(layers: Sequence[nn.Module], tiling: Tiling, fused_layers: int) -> FusedSequential:
    """Return the layers in fused blocks.

    Args:
        layers: See `FusedBlock`.
        tiling: The tiles of the input.
        fused_layers: The most layers with a window per block; with 1 each has its own exchange. A
            block also contains the pixelwise layers after its last window.

    Raises:
        TypeError: `FusedBlock` does not support a layer.
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
        windows_in_group = sum(isinstance(member, WINDOWED) for member in groups[-1])
        if isinstance(layer, WINDOWED) and windows_in_group == fused_layers:
            groups.append([])
        groups[-1].append(layer)
    blocks: list[FusedBlock] = []
    for group in groups:
        blocks.append(FusedBlock(group, blocks[-1].output if blocks else tiling))
    return FusedSequential(blocks)


def _make_chain(layers: Sequence[nn.Module], tiling: Tiling) -> tuple[list[ChainLayer], Tiling]:
    """Return the chain of the layers, and the tiles of the last one's output."""
    chain = []
    for index, layer in enumerate(layers):
        name = f"layer {index} ({type(layer).__name__})"
        layer_tiling = tiling
        if isinstance(layer, WINDOWED):
            layer_tiling = layer.tiled.tiling
            chain.append(ChainLayer(tiling.partition, layer.window))
        elif isinstance(layer, SpatialBatchNorm2d):
            layer_tiling = layer.tiling
            chain.append(ChainLayer(tiling.partition, statistics=True))
        elif isinstance(layer, PIXELWISE):
            chain.append(ChainLayer(tiling.partition))
        else:
            raise TypeError(
                f"{name} cannot be fused; it must be a spatial convolution, pool or batch norm, or "
                "a module without parameters that works on each value alone"
            )
        if layer_tiling.partition != tiling.partition:
            raise ValueError(
                f"{name} was made for other tiles than it gets; give it the output of the layer "
                "before it as its tiling"
            )
        tiling = layer.output if isinstance(layer, WINDOWED) else tiling
    if not any(chain_layer.window for chain_layer in chain):
        raise ValueError("no layer of the fused block has a window; give it one that has")
    return chain, tiling


def _crop(pixels: torch.Tensor, origin: Box, box: Box) -> torch.Tensor:
    return pixels if box == origin else view_box(pixels, origin, box)
