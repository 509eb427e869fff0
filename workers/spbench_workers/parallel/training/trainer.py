"""What follows the backward of a step: sums over ranks, and the update of the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import ModelLayout, Place
from spbench_workers.parallel.plan import MIRROR, OWNER, TrainingConfig
from spbench_workers.parallel.precision.loss_scale import LossScale
from spbench_workers.parallel.training.gradients import FlatGradients, sharings
from spbench_workers.parallel.training.master_comm import MasterComm
from spbench_workers.parallel.training.running_statistics import MirroredStatistics
from spbench_workers.parallel.training.updates import Updates


@dataclass(frozen=True, slots=True)
class TrainingTraffic:
    """What a rank has sent so that all copies of its weights stay alike; not what tiles exchange.

    Attributes:
        sum_bytes: Of gradients in sums over ranks, as `Sharing.bytes` counts them.
        sums: Of such sums, one for each 16 MiB of fp32.
        one_way_bytes: Of gradients to owners, and of weights from them, as `MasterComm.bytes` is.
        one_way_messages: Of them.
    """

    sum_bytes: int
    sums: int
    one_way_bytes: int
    one_way_messages: int


class Trainer:
    """Lets a rank's stages learn. All ranks must make it, and call its methods, together.

    Args:
        world: The ranks of the layout.
        layout: The layout.
        training: How weights follow from gradients.
        stages: This rank's places and modules, by direction, or by round.
        batches: Micro-batches of a replica's step.
        loss_scale: Of fp16: what gradients are divided by before the update.
        one_way: Whether one of two mirrored copies owns the weights.
        grouped: Whether torch.distributed sums gradients over members and replicas: NCCL does on
            GPUs. Else MPI does.

    Attributes:
        optimizer: What the optimizer is called.

    Raises:
        ValueError: There is no such optimizer; or one way, and nothing mirrored.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        layout: ModelLayout,
        training: TrainingConfig,
        stages: Sequence[tuple[Place, nn.Module]],
        batches: Sequence[MicroBatch],
        loss_scale: LossScale | None = None,
        *,
        one_way: bool = False,
        grouped: bool = False,
    ) -> None:
        self._loss_scale, self._skips = loss_scale, False
        owned = [not one_way or place.direction == OWNER for place, _ in stages]
        parameters = list(
            chain.from_iterable(stage.parameters() for _, stage in compress(stages, owned))
        )
        self._updated = set(parameters)
        self.optimizer = training.optimizer
        self._updates = Updates(training, parameters)
        self._decay = training.learning_rate_decay
        self._gradients = [FlatGradients(stage) for _, stage in stages]
        places = [place for place, _ in stages]
        copies = compress(zip(places, self._gradients, strict=True), owned)
        self._sharings, self._sums = sharings(world, layout, list(copies), grouped=grouped), 0
        self._one_way = MasterComm(world, layout, stages, self._gradients) if one_way else None
        self._last = {batch.direction: index for index, batch in enumerate(batches)}
        self._statistics = (
            MirroredStatistics(world, layout, stages, len(batches)) if layout.mirrored else None
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

    def end_backward(self, direction: int, micro_batch: int) -> None:
        """Hear which micro-batch's gradients a direction has."""
        if self._one_way is not None and (direction, micro_batch) == (MIRROR, self._last[MIRROR]):
            self._one_way.send_gradients()

    def sum(self) -> None:
        """Sum gradients, and mirrored statistics, over the ranks."""
        if self._one_way is not None:
            self._one_way.add_gradients()
        for sharing in self._sharings:
            sharing.sum()
        self._sums += 1
        if self._statistics is not None:
            self._statistics.end()
        if self._loss_scale is not None:
            flat = [gradients.flat for gradients in self._gradients]
            self._skips = not self._loss_scale.unscale(flat)

    def update(self) -> None:
        """Update the weights; leave them where a rank's gradients were too large for fp16."""
        if not self._skips:
            self._updates.step()

    def share(self) -> None:
        """Give the weights to the copies that own none."""
        if self._one_way is not None:
            self._one_way.send_weights()

    @property
    def traffic(self) -> TrainingTraffic:
        """What this rank has sent since the start."""
        one_way = self._one_way
        return TrainingTraffic(
            self._sums * sum(sharing.bytes for sharing in self._sharings),
            self._sums * sum(sharing.messages for sharing in self._sharings),
            0 if one_way is None else one_way.bytes,
            0 if one_way is None else one_way.messages,
        )

    def end_epoch(self) -> None:
        """Let the training rate decay."""
        self._updates.learning_rate *= self._decay

    @property
    def learning_rate(self) -> float:
        """What the next step learns with."""
        return self._updates.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._updates.learning_rate = rate

    def state_of(self, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
        """Return what the optimizer keeps for a parameter: nothing before the first step."""
        return dict(self._updates.states.get(parameter, {}))

    def set_state(self, parameter: nn.Parameter, state: Mapping[str, torch.Tensor]) -> None:
        """Let the optimizer go on from what it has kept for a parameter; the tensors are copied.

        Of a copy that owns no weights nothing is kept.
        """
        if parameter not in self._updated:
            return
        self._updates.states[parameter] = {
            # Moments are as the parameter is; Adam counts its steps in a number of its own.
            word: torch.empty_like(parameter).copy_(one) if one.ndim else one.clone()
            for word, one in state.items()
        }

    def free(self) -> None:
        """Give back what MPI holds for it."""
        mirrored = () if self._statistics is None else self._statistics.sharings
        for sharing in (*self._sharings, *mirrored):
            sharing.free()
        if self._one_way is not None:
            self._one_way.free()
