"""The trainer of a rank's stages: sums of gradients, and updates of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import ModelLayout, RankCoordinates
from spbench_parallel.plan import MIRROR, OWNER, TrainingConfig
from spbench_parallel.precision.loss_scale import LossScale
from spbench_parallel.training.gradients import BUCKET_NUMBERS, FlatGradients, create_weight_groups
from spbench_parallel.training.master_comm import MasterComm
from spbench_parallel.training.running_statistics import MirroredStatistics
from spbench_parallel.training.updates import Optimizer, State


@dataclass(frozen=True, slots=True)
class TrainingTraffic:
    """Traffic of a rank that keeps all copies of its weights equal.

    Halos are not counted.

    Attributes:
        sum_bytes: Bytes of gradients in allreduces, counted like `WeightGroup.bytes`.
        sums: Number of allreduces, one per 16 MiB of fp32.
        master_comm_bytes: Bytes of gradients to owners and weights from them: `MasterComm.bytes`.
        master_comm_messages: Messages of these: `MasterComm.messages`.
    """

    sum_bytes: int
    sums: int
    master_comm_bytes: int
    master_comm_messages: int


class Trainer:
    """The trainer of a rank's stages.

    All ranks must create it, and call its methods, together.

    Args:
        world: The ranks of the layout.
        layout: The layout.
        training: The optimizer and its learning rate.
        stages: This rank's coordinates and modules, by direction or by round.
        batches: Micro-batches of a replica's step.
        loss_scale: In fp16, the scale by which gradients are divided before the update.
        master_comm: Whether one of two mirrored copies owns the weights, like in GEMS-MASTER.
        grouped: Whether torch.distributed sums gradients over members and replicas, by NCCL on
            GPUs. Otherwise MPI does.
        bucket_numbers: The most numbers in one message.

    Attributes:
        optimizer: The name of the optimizer.

    Raises:
        ValueError: The optimizer is unknown, or ``master_comm`` is set without a mirror.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        layout: ModelLayout,
        training: TrainingConfig,
        stages: Sequence[tuple[RankCoordinates, nn.Module]],
        batches: Sequence[MicroBatch],
        loss_scale: LossScale | None = None,
        *,
        master_comm: bool = False,
        grouped: bool = False,
        bucket_numbers: int = BUCKET_NUMBERS,
    ) -> None:
        self._loss_scale = loss_scale
        self._skips_update = False
        is_owned_by_stage = [
            not master_comm or coordinates.direction == OWNER for coordinates, _ in stages
        ]
        parameters = list(
            chain.from_iterable(
                stage.parameters() for _, stage in compress(stages, is_owned_by_stage)
            )
        )
        self._updated_parameters = set(parameters)
        self.optimizer = training.optimizer
        self._optimizer = Optimizer(training, parameters)
        self._decay = training.learning_rate_decay
        self._gradients = [FlatGradients(stage) for _, stage in stages]
        owned_gradients = compress(
            (
                (coordinates, gradients)
                for (coordinates, _), gradients in zip(stages, self._gradients, strict=True)
            ),
            is_owned_by_stage,
        )
        # Each of these creates communicators: weight groups, GEMS-MASTER's exchange and mirrored
        # statistics, in the same order on all ranks.
        self._weight_groups = create_weight_groups(
            world, layout, list(owned_gradients), grouped=grouped, bucket_numbers=bucket_numbers
        )
        self._sum_count = 0
        self._master_comm = (
            MasterComm(world, layout, stages, self._gradients, bucket_numbers)
            if master_comm
            else None
        )
        self._last_batch_by_direction = {
            batch.direction: index for index, batch in enumerate(batches)
        }
        self._statistics = (
            MirroredStatistics(world, layout, stages, len(batches), bucket_numbers)
            if layout.mirrored
            else None
        )

    def begin(self) -> None:
        """Begin a step: set gradients to zero, and save running statistics."""
        for gradients in self._gradients:
            gradients.clear()
        if self._statistics is not None:
            self._statistics.begin()

    def prepare_forward(self, direction: int, micro_batch: int) -> None:
        """Update the running statistics before the forward pass of a micro-batch."""
        if self._statistics is not None:
            self._statistics.decay_until(direction, micro_batch)

    def finish_backward(self, direction: int, micro_batch: int) -> None:
        """Record that a micro-batch's backward pass is done.

        After the mirror's last one, start to send its gradients.
        """
        if self._master_comm is not None and (direction, micro_batch) == (
            MIRROR,
            self._last_batch_by_direction[MIRROR],
        ):
            self._master_comm.send_gradients()

    def sum_gradients(self) -> None:
        """Sum gradients, and mirrored statistics, over the ranks."""
        # A mirror's gradients come first: the owner's are then summed over members and replicas.
        if self._master_comm is not None:
            self._master_comm.add_gradients()
        for weight_group in self._weight_groups:
            weight_group.sum()
        self._sum_count += 1
        if self._statistics is not None:
            self._statistics.end()
        if self._loss_scale is not None:
            flat_gradients = [gradients.flat_tensor for gradients in self._gradients]
            self._skips_update = not self._loss_scale.unscale(flat_gradients)

    def update_weights(self) -> None:
        """Update the weights, unless a rank's gradients were too large for fp16."""
        if not self._skips_update:
            self._optimizer.step()

    def share_weights(self) -> None:
        """Send updated weights to the copies that own none."""
        if self._master_comm is not None:
            self._master_comm.send_weights()

    @property
    def traffic(self) -> TrainingTraffic:
        """The traffic of this rank since the start."""
        master_comm = self._master_comm
        return TrainingTraffic(
            self._sum_count * sum(weight_group.bytes for weight_group in self._weight_groups),
            self._sum_count * sum(weight_group.messages for weight_group in self._weight_groups),
            0 if master_comm is None else master_comm.bytes,
            0 if master_comm is None else master_comm.messages,
        )

    @property
    def optimizer_states(self) -> Mapping[nn.Parameter, State]:
        """The state of the optimizer, by parameter; empty before the first step."""
        return self._optimizer.states

    def end_epoch(self) -> None:
        """Decay the learning rate."""
        self._optimizer.learning_rate *= self._decay

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._optimizer.learning_rate = rate

    def optimizer_state(self, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
        """Return the optimizer's state of a parameter; empty before the first step."""
        return dict(self._optimizer.states.get(parameter, {}))

    def set_optimizer_state(
        self, parameter: nn.Parameter, state: Mapping[str, torch.Tensor]
    ) -> None:
        """Set the optimizer's state of a parameter; the tensors are copied.

        A copy that owns no weights ignores it.
        """
        if parameter not in self._updated_parameters:
            return
        self._optimizer.states[parameter] = {
            # Moments have the parameter's format; Adam's count of steps is a separate scalar.
            name: torch.empty_like(parameter).copy_(tensor) if tensor.ndim else tensor.clone()
            for name, tensor in state.items()
        }

    def free(self) -> None:
        """Free the communicators. All ranks must call it."""
        mirrored = () if self._statistics is None else self._statistics.mirror_groups
        for weight_group in (*self._weight_groups, *mirrored):
            weight_group.free()
        if self._master_comm is not None:
            self._master_comm.free()
