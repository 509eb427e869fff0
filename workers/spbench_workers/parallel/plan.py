"""What a model benchmark computes on which ranks, and how it learns."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import ModelLayout
from spbench_core.models.layers import Model
from spbench_workers.parallel.precision.formats import FP32, Precision

MIRROR, OWNER = 0, 1
"""The directions whose copies send gradients, and own the weights, in ``one_way`` layouts."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What is computed, and where.

    Attributes:
        model: The model.
        layout: Its ranks: all of the job's.
        balance: Layers of each stage.
        batches: The micro-batches of a replica's step.
        schedule: ``1f1b``, ``gpipe`` or ``1f1b-deep``; of several rounds ``interleaved``.
        seed: Of the initial weights.
        device: Of this rank.
        precision: The number formats.
        transport: What carries halos.
        backend: What carries messages between stages: ``mpi``, ``gloo`` or ``nccl``.
        one_way: Of mirrored pipelines, whether gradients go one way and weights the other, in place
            of an allreduce: `spbench_workers.parallel.training.master_comm`.
        statistics: Over what batch normalisation takes them: the whole ``image`` of a micro-batch,
            that of all ``replicas``; or each ``tile`` by itself, which is wrong, and is there to
            show that it is noticed.
        fused_layers: In stages of tiles, layers that share one wider halo exchange; 0: none do,
            each operator has its own.
    """

    model: Model
    layout: ModelLayout
    balance: tuple[int, ...]
    batches: tuple[MicroBatch, ...]
    schedule: str = "1f1b"
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: Precision = FP32
    transport: str = "once"
    backend: str = "mpi"
    one_way: bool = False
    statistics: str = "image"
    fused_layers: int = 0

    @property
    def owner(self) -> int:
        """The direction whose copies have all gradients, and the optimizer's state, of a stage.

        Without `one_way` both directions have.
        """
        return OWNER if self.one_way else 0

    @property
    def dtype(self) -> torch.dtype:
        """The number format of images, and of what goes between stages and between tiles."""
        return self.precision.work


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How weights follow from gradients.

    Attributes:
        optimizer: ``sgd`` (with a momentum of 0.9), ``adam`` or ``adamw``.
        learning_rate: Of the first epoch.
        weight_decay: As torch's optimizers have it.
        learning_rate_decay: What the learning rate is multiplied by after each epoch.
    """

    optimizer: str = "sgd"
    learning_rate: float = 0.001
    weight_decay: float = 0.0
    learning_rate_decay: float = 1.0
