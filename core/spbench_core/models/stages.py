"""Stages of a model: balance by estimated cost, tiles, and groups of fused layers.

A group of layers shares a halo exchange (``fused_layers``, halo_D2 of MPI4DL).
"""

from __future__ import annotations

from collections.abc import Sequence

from spbench_core.layout.balance import Balance, balance_layers
from spbench_core.layout.stages import ModelLayout
from spbench_core.layout.tiles import Grid
from spbench_core.models.layers import Model
from spbench_core.models.parts import ModelError


def balance_by_cost(model: Model, layout: ModelLayout) -> Balance:
    """Return the number of layers of each stage, with multiply-adds as their costs."""
    costs = [float(count.multiply_adds) for count in model.counts]
    return balance_layers(costs, [stage.rank_count for stage in layout.stages])


def check_tiles(stage: int, grid: Grid, model: Model, first: int) -> None:
    """Reject a stage if the input of its layer ``first`` has fewer pixels than tiles.

    Raises:
        ModelError: The stage has fewer pixels than tiles.
    """
    height = min(shape.height for shape in model.flows[first])
    width = min(shape.width for shape in model.flows[first])
    if grid.rows > height or grid.cols > width:
        raise ModelError(
            "grid",
            f"stage {stage} begins with {height}x{width} pixels, too few for a grid of {grid}: "
            f"take {min(grid.rows, height)}x{min(grid.cols, width)} tiles at most, "
            "or a larger image_size",
        )


def group_layers(model: Model, first: int, last: int, fused_layers: int) -> tuple[range, ...]:
    """Split a stage in groups of ``fused_layers``; the last may have fewer.

    The model's last layer is in no group, because it turns the whole map into a vector.
    """
    last_fusible = min(last, len(model.layers) - 1)
    starts = range(first, last_fusible, fused_layers)
    return tuple(range(start, min(start + fused_layers, last_fusible)) for start in starts)


def check_fused_layers(model: Model, stages: Sequence[tuple[int, int]], fused_layers: int) -> None:
    """Reject groups with more layers than any spatial stage has.

    Args:
        model: The model.
        stages: The first layer and one past the last layer of each spatial stage.
        fused_layers: The number of layers that share an exchange.

    Raises:
        ModelError: No stage has that many layers to fuse.
    """
    maximum = max(len(range(first, min(last, len(model.layers) - 1))) for first, last in stages)
    if fused_layers > maximum:
        raise ModelError(
            "fused_layers",
            f"fused_layers {fused_layers} is more than a stage of tiles has layers to fuse: "
            f"take {maximum} at most (the model's last layer is not fused)",
        )
