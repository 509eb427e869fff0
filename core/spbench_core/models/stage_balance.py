"""Balance of a model by estimated cost, and a check of a stage's tiles."""

from __future__ import annotations

from spbench_core.layout.balance import Balance, balance_layers
from spbench_core.layout.stages import ModelLayout
from spbench_core.layout.tiles import Grid
from spbench_core.models.layers import Model
from spbench_core.models.parts import ModelError


def balance_by_cost(model: Model, layout: ModelLayout) -> Balance:
    """Return the number of layers of each stage, with multiply-adds as their costs."""
    costs = [float(count.multiply_adds) for count in model.counts]
    return balance_layers(costs, [stage.ranks for stage in layout.stages])


def check_tiles(stage: int, grid: Grid, model: Model, first: int) -> None:
    """Reject a stage if the input of its layer ``first`` has fewer pixels than tiles.

    Raises:
        ModelError: The stage has fewer pixels than tiles.
    """
    height = min(data.height for data in model.flows[first])
    width = min(data.width for data in model.flows[first])
    if grid.rows > height or grid.cols > width:
        raise ModelError(
            "grid",
            f"stage {stage} begins with {height}x{width} pixels, too few for a grid of {grid}: "
            f"take {min(grid.rows, height)}x{min(grid.cols, width)} tiles at most, "
            "or a larger image_size",
        )
