"""What follows the backward of a step: sums over ranks, and the update of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from mpi4py import MPI
from torch import nn

from spbench_workers.layout_models import ModelLayout, Place
from spbench_workers.parallel.gradients import FlatGradients, sharings
from spbench_workers.parallel.plan import Learning
from spbench_workers.parallel.running_statistics import MirroredStatistics

MOMENTUM = 0.9
"""Of SGD."""


class Learner:
    """Lets a rank's stages learn. All ranks must make it, and call its methods, together.

    Args:
        world: The ranks of the layout.
        layout: The layout.
        learning: How weights follow from gradients.
        stages: This rank's places and modules, by direction.
        count: Micro-batches of a replica's step.

    Raises:
        ValueError: There is no such optimizer.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        layout: ModelLayout,
        learning: Learning,
        stages: Sequence[tuple[Place, nn.Module]],
        count: int,
    ) -> None:
        parameters = chain.from_iterable(stage.parameters() for _, stage in stages)
        self._optimizer = _optimizer(learning, list(parameters))
        self._decay = learning.learning_rate_decay
        self._gradients = [FlatGradients(stage) for _, stage in stages]
        places = [place for place, _ in stages]
        self._sharings = sharings(world, layout, list(zip(places, self._gradients, strict=True)))
        self._statistics = (
            MirroredStatistics(world, layout, stages, count) if layout.mirrored else None
        )

    def begin(self) -> None:
        """Make ready for a step."""
        for gradients in self._gradients:
            gradients.clear()
        if self._statistics is not None:
            self._statistics.begin()

    def pass_others(self, direction: int, micro_batch: int) -> None:
        """Hear which micro-batch a direction's forward takes next."""
        if self._statistics is not None:
            self._statistics.pass_others(direction, micro_batch)

    def sum(self) -> None:
        """Sum gradients, and mirrored statistics, over the ranks."""
        for sharing in self._sharings:
            sharing.sum()
        if self._statistics is not None:
            self._statistics.end()

    def update(self) -> None:
        """Update the weights."""
        self._optimizer.step()

    def end_epoch(self) -> None:
        """Let the learning rate decay."""
        for group in self._optimizer.param_groups:
            group["lr"] *= self._decay

    def free(self) -> None:
        """Give back what MPI holds for it."""
        mirrored = () if self._statistics is None else self._statistics.sharings
        for sharing in (*self._sharings, *mirrored):
            sharing.comm.Free()


def _optimizer(learning: Learning, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    rate, decay = learning.learning_rate, learning.weight_decay
    match learning.optimizer:
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM, weight_decay=decay)
        case "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=decay)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
    raise ValueError(f"there is no optimizer {learning.optimizer!r}")
