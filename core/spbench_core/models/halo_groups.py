"""Groups of layers that share a halo exchange (halo_D2 of MPI4DL, ``fused_layers``)."""

from __future__ import annotations

from collections.abc import Sequence

from spbench_core.models.layers import Model
from spbench_core.models.parts import ModelError


def group_layers(model: Model, first: int, last: int, fused_layers: int) -> tuple[range, ...]:
    """Return the groups of a stage's layers, ``fused_layers`` in each; the last may have fewer.

    The model's last layer makes a vector of the whole map: it is in no group.
    """
    end = min(last, len(model.layers) - 1)
    starts = range(first, end, fused_layers)
    return tuple(range(start, min(start + fused_layers, end)) for start in starts)


def check_fused_layers(model: Model, stages: Sequence[tuple[int, int]], fused_layers: int) -> None:
    """Refuse groups of more layers than any stage has.

    Args:
        model: The model.
        stages: Of each stage that works on tiles, its first layer, and one past its last.
        fused_layers: Layers that share an exchange.

    Raises:
        ModelError: No stage has so many layers to fuse.
    """
    most = max(len(range(first, min(last, len(model.layers) - 1))) for first, last in stages)
    if fused_layers > most:
        raise ModelError(
            "fused_layers",
            f"fused_layers {fused_layers} is more than a stage of tiles has layers to fuse: "
            f"take {most} at most (the model's last layer is not fused)",
        )
