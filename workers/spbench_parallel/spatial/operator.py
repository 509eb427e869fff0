"""Operators with a window over tiles, and those whose output is the same on every rank."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn
from torch.autograd import Function

from spbench_core.layout.tiles import Box
from spbench_core.layout.window import Window2d
from spbench_parallel.spatial.execution import LocalOperator, TiledExecution
from spbench_parallel.spatial.interior_split import (
    make_interior_split,
    make_whole_split,
    window_transfers,
)
from spbench_parallel.spatial.overlap import (
    WITHIN_HOST,
    OverlapChoice,
    choose_faster,
    overlap_cannot_help,
)
from spbench_parallel.spatial.tile_buffer import PaddedReLU
from spbench_parallel.spatial.tiling import Tiling


class TiledWindow:
    """An operator with a window, run over tiles with the result of the operator on the whole image.

    There are two ways: to compute the interior while the halo travels, and the rest in strips
    (overlap), or all outputs at once from the tile with its halo.

    Args:
        tiling: The tiles of the input; it says which way is taken.
        window: The operator's window.
        fill: The value of the pixels outside the image, for this operator.

    Attributes:
        output: The tiles of the output.
        ways: The two ways, by whether they overlap.
        chosen: The choice for the last tile, where it was left open; else None.

    Raises:
        ValueError: The window is larger than the padded image.
    """

    def __init__(self, tiling: Tiling, window: Window2d, fill: float = 0.0) -> None:
        self.tiling = tiling
        self.window = window
        owned = tiling.partition
        self.output = tiling.resized(*window.output_size(owned.height, owned.width))
        produced = self.output.partition
        rank = tiling.comm.rank
        halo = window_transfers(window, owned, produced)
        self.executions = {
            overlap: TiledExecution(
                tiling, window, split(window, owned, produced, rank), halo, fill
            )
            for overlap, split in ((True, make_interior_split), (False, make_whole_split))
        }
        self.last_choice: OverlapChoice | None = None
        self._exchanges = any(halo.list_received(each) for each in range(owned.size))
        self._alone = not self._exchanges and all(
            read.intersect(owned.tile(each)) == read
            for each in range(owned.size)
            for read in make_whole_split(window, owned, produced, each).reads
        )

    def run(self, tile: torch.Tensor, operator: LocalOperator) -> torch.Tensor:
        """Return this rank's outputs of the operator on its tile.

        Raises:
            ValueError: The tile does not have the shape of this rank's tile in the tiling.
        """
        check_tile(self.tiling, tile)
        if self._alone:
            return self.executions[False].run_without_halo(tile, operator)
        overlap = self.choose_overlap(tile, operator).overlap
        return self.executions[overlap].run(tile, operator, overlap=overlap)

    def choose_overlap(
        self, tile: torch.Tensor, operator: LocalOperator, *, timed: bool = False
    ) -> OverlapChoice:
        """Return whether it overlaps for tiles like this one; all ranks must ask together.

        ``timed``: Both ways are timed even where nothing could be hidden.
        """
        overlap = self.tiling.overlap
        comm = self.tiling.comm
        if overlap is not None or not self._exchanges:
            return OverlapChoice(bool(overlap))
        if not timed and (
            self.last_choice is WITHIN_HOST or overlap_cannot_help(comm, tile.device)
        ):
            self.last_choice = WITHIN_HOST
            return self.last_choice
        likeness = (
            self.window,
            self.tiling.partition,
            *(tile.shape[0], tile.shape[1], operator.channels),
            *(tile.dtype, tile.device.type),
        )
        self.last_choice = choose_faster(comm, self.executions, tile, operator, likeness)
        return self.last_choice

    @property
    def padded_box(self) -> Box | None:
        """The tile and the halo that all outputs are computed from at once; None if there is none.

        A tile that lies in a buffer of these pixels is not copied.
        """
        tile = self.tiling.tile
        (read,) = self.executions[False].split.reads
        roomy = not self._alone and not tile.empty and read.intersect(tile) == tile
        return read if roomy else None

    def make_preceding_relu(self) -> nn.ReLU:
        """Return a ReLU for its input that leaves room for the halo around the tile."""
        room = self.padded_box
        return nn.ReLU() if room is None else PaddedReLU(self.tiling.tile, room)

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        for way in self.executions.values():
            way.gathers.free()


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
