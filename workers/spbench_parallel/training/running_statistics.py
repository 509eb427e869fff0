"""Running statistics of batch norm in two mirrored pipelines.

Each micro-batch updates them: r becomes (1 - m) r + m s. That is linear. So each direction sums the
contributions of its micro-batches, and lets the sum decay for each micro-batch of the other
direction in between. The two sums, added to the decayed values from before the step, are those of
one pipeline that takes the micro-batches in their order, in any schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from mpi4py import MPI
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from spbench_core.layout.stages import ModelLayout, RankCoordinates
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.writes import list_counters
from spbench_parallel.training.gradients import BUCKET_NUMBERS, create_mirror_groups


class FlatStatistics:
    """The running means and variances of a stage, all in one tensor.

    Attributes:
        norms: The batch normalisations, sorted by momentum.
        flat_tensor: The tensor; the norms' buffers are views of it. Empty in a stage without norms.
        kept_shares: By momentum, the number of values, and the share of them that remains after
            one more micro-batch: 1 - momentum.

    Raises:
        CannotRunError: A norm has no momentum.
    """

    def __init__(self, module: nn.Module) -> None:
        norms = [norm for norm in module.modules() if isinstance(norm, _BatchNorm)]
        self.norms = sorted(
            (norm for norm in norms if norm.running_mean is not None),
            key=_get_momentum,
            reverse=True,
        )
        buffers = [
            buffer
            for norm in self.norms
            for buffer in (norm.running_mean, norm.running_var)
            if buffer is not None
        ]
        self.flat_tensor = torch.cat(buffers) if buffers else torch.empty(0)
        parts = iter(
            self.flat_tensor.split([buffer.numel() for buffer in buffers]) if buffers else ()
        )
        for norm in self.norms:
            # Through `data`: autograd saves the buffers for backward and rejects later changes,
            # although it does not read them in training.
            norm.running_mean = next(parts).data
            norm.running_var = next(parts).data
        self.kept_shares = [
            (sum(2 * norm.num_features for norm in norms_of_momentum), 1.0 - momentum)
            for momentum, norms_of_momentum in groupby(self.norms, key=_get_momentum)
        ]

    def decay(self, steps: int) -> None:
        """Decay all values as for ``steps`` micro-batches.

        The factors are numbers, not tensors: so no kernel is launched that a GPU has not loaded.
        """
        for part, kept_share in self._split_by_momentum(self.flat_tensor):
            part.mul_(kept_share**steps)

    def add_decayed(self, before: torch.Tensor, steps: int) -> None:
        """Add earlier values, decayed by ``steps`` micro-batches, to `flat_tensor`."""
        pairs = zip(
            self._split_by_momentum(self.flat_tensor), self._split_by_momentum(before), strict=True
        )
        for (part, kept_share), (values, _) in pairs:
            part.add_(values, alpha=kept_share**steps)

    def _split_by_momentum(self, values: torch.Tensor) -> Iterator[tuple[torch.Tensor, float]]:
        sizes = [size for size, _ in self.kept_shares]
        if sizes:
            yield from zip(
                values.split(sizes), (share for _, share in self.kept_shares), strict=True
            )


class MirroredStatistics:
    """The running statistics of a rank's two stages, over a step.

    All ranks must create it, and end a step, together.

    Args:
        world: The ranks of the layout.
        layout: Two mirrored pipelines.
        stages: This rank's coordinates and modules, by direction.
        batch_count: Micro-batches of a step, in both directions.
        bucket_numbers: The most numbers in one message.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        layout: ModelLayout,
        stages: Sequence[tuple[RankCoordinates, nn.Module]],
        batch_count: int,
        bucket_numbers: int = BUCKET_NUMBERS,
    ) -> None:
        self._batch_count = batch_count
        self._statistics_by_direction = [FlatStatistics(module) for _, module in stages]
        self._values_before = [
            statistics.flat_tensor.clone() for statistics in self._statistics_by_direction
        ]
        self._counter_steps_by_direction = [list(list_counters(module)) for _, module in stages]
        self._decayed_batches_by_direction = [0] * len(stages)
        self._own_batches_by_direction = [0] * len(stages)
        self.mirror_groups = create_mirror_groups(
            world,
            layout,
            [
                (coordinates, statistics)
                for (coordinates, _), statistics in zip(
                    stages, self._statistics_by_direction, strict=True
                )
            ],
            bucket_numbers=bucket_numbers,
        )

    def begin(self) -> None:
        """Begin a step: save the values, and set the sums to zero."""
        for direction, (statistics, before) in enumerate(
            zip(self._statistics_by_direction, self._values_before, strict=True)
        ):
            before.copy_(statistics.flat_tensor)
            statistics.flat_tensor.zero_()
            self._decayed_batches_by_direction[direction] = 0
            self._own_batches_by_direction[direction] = 0

    def decay_until(self, direction: int, micro_batch: int) -> None:
        """Decay the sums for the other direction's micro-batches before this one."""
        statistics = self._statistics_by_direction[direction]
        statistics.decay(micro_batch - self._decayed_batches_by_direction[direction])
        self._decayed_batches_by_direction[direction] = micro_batch + 1
        self._own_batches_by_direction[direction] += 1

    def end(self) -> None:
        """End a step: add both directions' sums to the decayed earlier values."""
        for statistics, decayed in zip(
            self._statistics_by_direction, self._decayed_batches_by_direction, strict=True
        ):
            statistics.decay(self._batch_count - decayed)
        for mirror_group in self.mirror_groups:
            mirror_group.sum()
        for stage_counters, own_count in zip(
            self._counter_steps_by_direction, self._own_batches_by_direction, strict=True
        ):
            for counter, number in stage_counters:
                counter.add_(number * (self._batch_count - own_count))
        for statistics, before, own_count in zip(
            self._statistics_by_direction,
            self._values_before,
            self._own_batches_by_direction,
            strict=True,
        ):
            statistics.add_decayed(before, self._batch_count)
            for norm in statistics.norms:
                if norm.num_batches_tracked is not None:
                    norm.num_batches_tracked.add_(self._batch_count - own_count)


def _get_momentum(norm: _BatchNorm) -> float:
    """Return the share of a new micro-batch in a norm's statistics.

    Raises:
        CannotRunError: It has none: a plain mean of all micro-batches is not linear in this way.
    """
    if norm.momentum is None:
        raise CannotRunError(
            f"{norm}: mirrored pipelines add up running statistics, which takes a momentum; give "
            "it one, or take scheme lp"
        )
    return norm.momentum
