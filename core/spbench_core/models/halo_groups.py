"""Groups of layers that share a halo exchange (halo_D2 of MPI4DL)."""

from __future__ import annotations

from collections.abc import Sequence

from spbench_core.models.layers import Model
from spbench_core.models.parts import ModelError


def group_layers(model: Model, first: int, last: int, fused_layers: int) -> tuple[range, ...]:
    """Split a stage in groups of ``fused_layers``; the last may have fewer.

    The model's last layer is in no group, because it turns the whole map into a vector.
    """
    end = min(last, len(model.layers) - 1)
    starts = range(first, end, fused_layers)
    return tuple(range(start, min(start + fused_layers, end)) for start in starts)


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
