"""The module of a rank's stage: over whole images or tiles, shared or not."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from mpi4py import MPI
from torch import nn

from spbench_core.layout.balance import list_layer_ranges
from spbench_core.layout.stages import ModelLayout, RankCoordinates
from spbench_core.models.parts import MapShape
from spbench_parallel.device.failures import note_activity
from spbench_parallel.groups import create_group
from spbench_parallel.models.build import build_stage, free_operators
from spbench_parallel.models.builders import DenseBuilder, ModuleBuilder, SpatialBuilder
from spbench_parallel.models.fused import fuse_stage
from spbench_parallel.pipeline.sync_batch_norm import SyncDenseBuilder, SyncSpatialBuilder
from spbench_parallel.plan import ModelPlan
from spbench_parallel.spatial.tiling import Tiling


@dataclass(frozen=True, slots=True)
class BuiltStage:
    """The module of a stage with its communicators.

    Attributes:
        module: The stage.
        comms: The communicators of its tiles or members, and of its batch normalisation.
    """

    module: nn.Module
    comms: tuple[MPI.Intracomm, ...]

    def free(self) -> None:
        """Free buffers and communicators.

        All ranks that share the stage's images must call it.
        """
        free_operators(self.module)
        for comm in self.comms:
            comm.Free()


def build_local_stage(
    world: MPI.Intracomm, plan: ModelPlan, coordinates: RankCoordinates
) -> BuiltStage:
    """Build this rank's stage at its coordinates.

    All ranks must call it, in the order of their coordinates.

    Args:
        world: The ranks of the layout.
        plan: The model and its layout.
        coordinates: This rank's coordinates.
    """
    stage_comm = create_group(
        world,
        plan.layout.list_stage_ranks(coordinates.stage, coordinates.replica, coordinates.direction),
    )
    comms = [stage_comm]
    if plan.statistics == "replicas":
        comms.append(create_group(world, _list_ranks_of_all_replicas(plan.layout, coordinates)))
    first_layer, end_layer = list_layer_ranges(plan.balance)[coordinates.stage]
    builder = _create_builder(plan, coordinates, stage_comm, comms[-1])
    with note_activity(
        f"stage {coordinates.stage} was built, layers {first_layer} to {end_layer - 1}"
    ):
        stage = build_stage(
            plan.stage_model(coordinates.stage),
            first_layer,
            end_layer,
            builder,
            seed=plan.seed,
            device=plan.device,
            dtype=plan.precision.weights,
        )
    if plan.fused_layers and isinstance(builder, SpatialBuilder) and plan.statistics != "tile":
        # Separate batch norm of each tile has no statistics over the pixels that ranks own.
        stage = fuse_stage(stage, plan.model, first_layer, builder.tiling, plan.fused_layers)
    return BuiltStage(stage, tuple(comms))


def _create_builder(
    plan: ModelPlan,
    coordinates: RankCoordinates,
    stage_comm: MPI.Intracomm,
    norm_comm: MPI.Intracomm,
) -> ModuleBuilder:
    """Return the builder of a stage's operators.

    The ranks of `norm_comm` share its batch norm.
    """
    stage = plan.layout.stages[coordinates.stage]
    image = plan.model.image
    norms_tiles_separately = plan.statistics == "tile"
    if stage.spatial:
        tiling = Tiling.of_grid(
            stage_comm, stage.grid, image.height, image.width, transport=plan.transport
        )
        if norms_tiles_separately:
            return _TileNormBuilder(tiling)
        if plan.statistics == "replicas":
            return SyncSpatialBuilder(tiling, norm_comm)
        return SpatialBuilder(tiling)
    if norms_tiles_separately or norm_comm.size == 1:
        return DenseBuilder()
    return SyncDenseBuilder(norm_comm)


class _TileNormBuilder(SpatialBuilder):
    """A builder with separate batch norm of each tile: the fault ``tile-batchnorm``."""

    def norm(self, shape: MapShape) -> nn.Module:
        return DenseBuilder().norm(shape)

    def make_tiled_norm(self, module: nn.BatchNorm2d, tiling: Tiling) -> nn.Module:
        return copy.deepcopy(module)


def _list_ranks_of_all_replicas(layout: ModelLayout, coordinates: RankCoordinates) -> list[int]:
    replicas = range(layout.replicas)
    ranks_by_replica = (
        layout.list_stage_ranks(coordinates.stage, replica, coordinates.direction)
        for replica in replicas
    )
    return [rank for ranks in ranks_by_replica for rank in ranks]
