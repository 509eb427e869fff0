"""Operators with a window over tiles, and the check of their input."""

from __future__ import annotations

import torch
from torch import nn

from spbench_core.layout.tiles import Box
from spbench_core.layout.window import Window2d
from spbench_parallel.spatial.execution import LocalOperator, TiledExecution
from spbench_parallel.spatial.interior_split import (
    compute_window_transfers,
    split_interior,
    split_whole,
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
    """An operator with a window, run over tiles with the result of the whole image.

    There are two executions. With overlap, the interior is computed while the halo travels, and the
    rest in strips. Without, all outputs are computed at once from the tile with its halo.

    Args:
        tiling: The tiles of the input; it determines the execution.
        window: The operator's window.
        fill: The value outside the image.

    Attributes:
        output: The tiles of the output.
        executions: The two executions, by whether they overlap.
        last_choice: The choice for the last tile; None if ``tiling.overlap`` is set.

    Raises:
        ValueError: The window is larger than the padded image.
    """

    def __init__(self, tiling: Tiling, window: Window2d, fill: float = 0.0) -> None:
        self.tiling = tiling
        self.window = window
        input_tiles = tiling.partition
        self.output = tiling.resized(*window.output_size(input_tiles.height, input_tiles.width))
        output_tiles = self.output.partition
        rank = tiling.comm.rank
        halo = compute_window_transfers(window, input_tiles, output_tiles)
        self.executions = {
            overlap: TiledExecution(
                tiling, window, split(window, input_tiles, output_tiles, rank), halo, fill
            )
            for overlap, split in ((True, split_interior), (False, split_whole))
        }
        self.last_choice: OverlapChoice | None = None
        self._exchanges = any(halo.list_received(peer) for peer in range(input_tiles.size))
        self._reads_own_tile = not self._exchanges and all(
            read_box.intersect(input_tiles.tile(peer)) == read_box
            for peer in range(input_tiles.size)
            for read_box in split_whole(window, input_tiles, output_tiles, peer).strip_inputs
        )

    def run(self, tile: torch.Tensor, operator: LocalOperator) -> torch.Tensor:
        """Return this rank's outputs of the operator on its tile.

        Raises:
            ValueError: The tile does not have the shape of this rank's tile in the tiling.
        """
        check_tile(self.tiling, tile)
        if self._reads_own_tile:
            return self.executions[False].run_without_halo(tile, operator)
        overlap = self.choose_overlap(tile, operator).overlap
        return self.executions[overlap].run(tile, operator, overlap=overlap)

    def choose_overlap(
        self, tile: torch.Tensor, operator: LocalOperator, *, timed: bool = False
    ) -> OverlapChoice:
        """Return whether to overlap for tiles like this one. Collective.

        ``timed``: Time both executions even if overlap cannot help.
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
        # Operators with the same key take the same time and share one choice.
        cost_key = (
            self.window,
            self.tiling.partition,
            *(tile.shape[0], tile.shape[1], operator.output_channels),
            *(tile.dtype, tile.device.type),
        )
        self.last_choice = choose_faster(comm, self.executions, tile, operator, cost_key)
        return self.last_choice

    @property
    def padded_box(self) -> Box | None:
        """The tile with the halo from which all outputs are computed; None without halo.

        A tile in a buffer of these pixels is not copied.
        """
        tile = self.tiling.tile
        (read_box,) = self.executions[False].split.strip_inputs
        has_halo = not self._reads_own_tile and not tile.empty and read_box.intersect(tile) == tile
        return read_box if has_halo else None

    def make_preceding_relu(self) -> nn.ReLU:
        """Return a ReLU for the input that leaves space for the halo around the tile."""
        box = self.padded_box
        return nn.ReLU() if box is None else PaddedReLU(self.tiling.tile, box)

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        for execution in self.executions.values():
            execution.gathers.free()


def check_tile(tiling: Tiling, tile: torch.Tensor) -> None:
    """Check the shape of this rank's tile.

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
