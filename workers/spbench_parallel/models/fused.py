"""Fused stages: groups of layers that share a halo exchange (halo_D2 of MPI4DL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from spbench_core.models.layers import Model
from spbench_core.models.stages import group_layers
from spbench_parallel.spatial.fused.graph_blocks import FusedGraph
from spbench_parallel.spatial.gather import Gather
from spbench_parallel.spatial.tiling import Tiling
from spbench_parallel.tensors import TensorOrTuple


class FusedStage(nn.Sequential):
    """A stage that runs its first layers in fused groups; layers keep their names.

    Args:
        layers: By name.
        groups: The fused groups of the first layers.
        fused_count: The number of these layers; the others run one by one.

    Attributes:
        groups: The fused groups.
    """

    def __init__(
        self, layers: Mapping[str, nn.Module], groups: Sequence[FusedGraph], fused_count: int
    ) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.groups = tuple(groups)
        # A tuple, so that torch registers each layer only once.
        self._other_layers = tuple(layers.values())[fused_count:]

    def forward(self, data: TensorOrTuple) -> TensorOrTuple:
        """Return the stage's output: this rank's tile, or a tuple of two."""
        for group in self.groups:
            tiles = group(*data) if isinstance(data, tuple) else group(data)
            data = tiles if len(tiles) > 1 else tiles[0]
        for layer in self._other_layers:
            data = layer(data)
        return data

    @property
    def gathers(self) -> list[Gather]:
        """The halo gathers of the groups created so far."""
        return [gather for group in self.groups for gather in group.gathers]

    def free(self) -> None:
        """Free the groups' buffers and requests. All ranks must call it."""
        for group in self.groups:
            group.free()


def fuse_stage(
    stage: nn.Sequential, model: Model, first: int, tiling: Tiling, fused_layers: int
) -> FusedStage:
    """Return a fused stage that is equal to a stage.

    Args:
        stage: Layers of the model, built by a `SpatialBuilder`.
        model: The model.
        first: The index of its first layer.
        tiling: The tiles of the model's image.
        fused_layers: Layers that share an exchange: 1 or more.
    """
    layers = dict(stage.named_children())
    layer_items = list(layers.items())
    index_ranges = group_layers(model, first, first + len(layer_items), fused_layers)
    groups = []
    for indices in index_ranges:
        tilings = [tiling.resized(data.height, data.width) for data in model.flows[indices.start]]
        groups.append(FusedGraph(dict(layer_items[index - first] for index in indices), tilings))
    return FusedStage(layers, groups, sum(map(len, index_ranges)))
