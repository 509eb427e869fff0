"""The plan of a model: layout, micro-batches, formats, optimizer settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from spbench_core.layout.balance import list_layer_ranges
from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import ModelLayout, build_layout
from spbench_core.models.layers import Model
from spbench_core.models.routes import StageRoutes, build_tensor_table, find_routes
from spbench_core.models.stages import check_fused_layers
from spbench_parallel.device.formats import MemoryFormat
from spbench_parallel.precision.formats import FP32, Precision

MOMENTUM = 0.9
"""The momentum of SGD."""
MIRROR = 0
OWNER = 1
"""The directions with GEMS-MASTER's communication (``master_comm``): the copies of `MIRROR` send
gradients, and those of `OWNER` own the weights.
"""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A model over many ranks: network, ranks, micro-batches and number formats.

    Attributes:
        model: The model.
        layout: Its ranks, which are all ranks of the job.
        balance: The number of layers of each stage.
        batches: The micro-batches of a replica's step.
        schedule: ``1f1b``, ``gpipe``, ``1f1b-deep`` or ``zb-h1``; ``interleaved`` with several
            rounds.
        memory_format: The memory format of maps.
        seed: The seed of the initial weights.
        device: The device of this rank.
        precision: The number formats.
        transport: The transport of halo exchanges.
        backend: The transport of messages between stages: ``mpi``, ``gloo`` or ``nccl``.
        master_comm: Use GEMS-MASTER's communication between mirrored pipelines: gradients go one
            way and weights the other, instead of an allreduce. See
            `spbench_parallel.training.master_comm`.
        statistics: The scope of batch normalisation: the whole ``image`` of a micro-batch, the
            images of all ``replicas`` (sync batch norm), or each ``tile`` separately. The last one
            is wrong: it is a fault that checks must detect.
        fused_layers: In tiled stages, the number of layers that share one wider halo exchange. With
            0 each operator has its own exchange.
        straight: Pairs of source and target stages between which tensors bypass the stages between.
        recompute: The activations that are recomputed instead of kept: of a whole ``stage``, or of
            each layer (``block``); None if all are kept.
        recompute_stages: The stages that recompute; None for all.
        loss: ``cross_entropy``, or ``dice`` in segmentation.
    """

    model: Model
    layout: ModelLayout
    balance: tuple[int, ...]
    batches: tuple[MicroBatch, ...]
    schedule: str = "1f1b"
    memory_format: MemoryFormat = "contiguous"
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: Precision = FP32
    transport: str = "once"
    backend: str = "mpi"
    master_comm: bool = False
    statistics: str = "image"
    fused_layers: int = 0
    straight: frozenset[tuple[int, int]] = frozenset()
    recompute: str | None = None
    recompute_stages: tuple[int, ...] | None = None
    loss: str = "cross_entropy"

    def routes(self) -> StageRoutes:
        """Return the routes of tensors between its stages."""
        return find_routes(
            build_tensor_table(self.model), list_layer_ranges(self.balance), self.straight
        )

    def stage_model(self, stage: int) -> Model:
        """Return the model without the tensors that bypass a stage."""
        first, last = list_layer_ranges(self.balance)[stage]
        return self.model.drop_tensors(first, last, self.routes().find_bypassing(stage))

    def recomputation(self, stage: int) -> str | None:
        """Return the activations that a stage recomputes; None if all are kept."""
        recomputes = self.recompute_stages is None or stage in self.recompute_stages
        return self.recompute if recomputes else None

    @property
    def owner(self) -> int:
        """The direction of copies with all gradients and the optimizer's state.

        Without `master_comm` the copies of both directions have them.
        """
        return OWNER if self.master_comm else 0

    @property
    def dtype(self) -> torch.dtype:
        """The number format of images, and of messages between stages and between tiles."""
        return self.precision.work


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Settings of training: the optimizer and its learning rate.

    Attributes:
        optimizer: ``sgd``, ``adam`` or ``adamw``.
        learning_rate: The learning rate of the first epoch.
        weight_decay: The weight decay of torch's optimizers.
        learning_rate_decay: The factor of the learning rate after each epoch.
        momentum: The momentum of ``sgd``.
    """

    optimizer: str = "sgd"
    learning_rate: float = 0.001
    weight_decay: float = 0.0
    learning_rate_decay: float = 1.0
    momentum: float = MOMENTUM


def check_fused(plan: ModelPlan) -> None:
    """Reject a plan that fuses more layers than its tiled stages have.

    Raises:
        ModelError: No tiled stage has as many layers as are to be fused.
    """
    pairs = zip(list_layer_ranges(plan.balance), plan.layout.stages, strict=True)
    ranges = [layers for layers, stage in pairs if stage.spatial]
    if plan.fused_layers:
        check_fused_layers(plan.model, ranges, plan.fused_layers)


def put_on_one_process(plan: ModelPlan) -> ModelPlan:
    """Return the plan of one replica on one process, with the same micro-batches."""
    return replace(
        plan,
        layout=build_layout(1),
        balance=(len(plan.model.layers),),
        batches=tuple(replace(batch, direction=0) for batch in plan.batches),
        schedule="1f1b",
        backend="mpi",
        master_comm=False,
        fused_layers=0,
        statistics="image",
        recompute=None,
    )
