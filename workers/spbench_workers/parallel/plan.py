"""What a model benchmark computes on which ranks, and how it learns."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from spbench_workers.layout_models import ModelLayout
from spbench_workers.models.layers import Model
from spbench_workers.parallel.micro_batches import MicroBatch


@dataclass(frozen=True, slots=True)
class Plan:
    """What is computed, and where.

    Attributes:
        model: The model.
        layout: Its ranks: all of the job's.
        balance: Layers of each stage.
        batches: The micro-batches of a replica's step.
        schedule: ``gpipe`` or ``1f1b``.
        seed: Of the initial weights.
        device: Of this rank.
        dtype: Of weights and of what goes between stages.
        transport: What carries halos.
    """

    model: Model
    layout: ModelLayout
    balance: tuple[int, ...]
    batches: tuple[MicroBatch, ...]
    schedule: str = "1f1b"
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    transport: str = "auto"


@dataclass(frozen=True, slots=True)
class Learning:
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
