"""The module of a rank's stage: over whole images or tiles, on one rank or shared by members."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from mpi4py import MPI
from torch import nn

from spbench_core.layout.balance import layer_ranges
from spbench_core.layout.stages import ModelLayout, Place
from spbench_core.models.parts import Map
from spbench_parallel.device.failures import note_activity
from spbench_parallel.groups import create_group
from spbench_parallel.models.build import build_stage, free
from spbench_parallel.models.builders import DenseBuilder, ModuleBuilder, SpatialBuilder
from spbench_parallel.models.fused import fuse_stage
from spbench_parallel.pipeline.sync_batch_norm import SyncDenseBuilder, SyncSpatialBuilder
from spbench_parallel.plan import ModelPlan
from spbench_parallel.spatial.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Built:
    """The module of a stage with its communicators.

    Attributes:
        module: The stage.
        comms: The communicators of its tiles or members, and of its batch normalisation.
    """

    module: nn.Module
    comms: tuple[MPI.Intracomm, ...]

    def free(self) -> None:
        """Free buffers and communicators. All ranks that share its images must call it."""
        free(self.module)
        for comm in self.comms:
            comm.Free()


def build(world: MPI.Intracomm, plan: ModelPlan, place: Place) -> Built:
    """Return the stage of a place. All ranks of the layout must call it, place by place.

    Args:
        world: The ranks of the layout.
        plan: The model and its layout.
        place: This rank's place.
    """
    stage_comm = create_group(
        world, plan.layout.ranks_of(place.stage, place.replica, place.direction)
    )
    comms = [stage_comm]
    if plan.statistics == "replicas":
        comms.append(create_group(world, _of_all_replicas(plan.layout, place)))
    first, last = layer_ranges(plan.balance)[place.stage]
    builder = _builder_of(plan, place, stage_comm, comms[-1])
    with note_activity(f"stage {place.stage} was built, layers {first} to {last - 1}"):
        stage = build_stage(
            plan.model_of(place.stage),
            first,
            last,
            builder,
            seed=plan.seed,
            device=plan.device,
            dtype=plan.precision.weights,
        )
    if plan.fused_layers and isinstance(builder, SpatialBuilder) and plan.statistics != "tile":
        # Batch norm of each tile by itself has no statistics over the pixels that ranks own.
        stage = fuse_stage(stage, plan.model, first, builder.tiling, plan.fused_layers)
    return Built(stage, tuple(comms))


def _builder_of(
    plan: ModelPlan, place: Place, stage_comm: MPI.Intracomm, normed: MPI.Intracomm
) -> ModuleBuilder:
    """Return the builder of a stage's operators; ``normed`` are the ranks of its batch norm."""
    own = plan.layout.stages[place.stage]
    image = plan.model.image
    by_tile = plan.statistics == "tile"
    if own.spatial:
        tiling = Tiling.of_grid(
            stage_comm, own.grid, image.height, image.width, transport=plan.transport
        )
        if by_tile:
            return _TileNormBuilder(tiling)
        return (
            SyncSpatialBuilder(tiling, normed)
            if plan.statistics == "replicas"
            else SpatialBuilder(tiling)
        )
    return DenseBuilder() if by_tile or normed.size == 1 else SyncDenseBuilder(normed)


class _TileNormBuilder(SpatialBuilder):
    """A builder whose batch norm is of each tile by itself: the fault ``tile-batchnorm``."""

    def norm(self, data: Map) -> nn.Module:
        return DenseBuilder().norm(data)

    def norm_like(self, module: nn.BatchNorm2d, tiling: Tiling) -> nn.Module:
        return copy.deepcopy(module)


def _of_all_replicas(layout: ModelLayout, place: Place) -> list[int]:
    replicas = range(layout.replicas)
    every = (layout.ranks_of(place.stage, replica, place.direction) for replica in replicas)
    return [rank for ranks in every for rank in ranks]
