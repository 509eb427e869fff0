"""Running statistics of batch norm in two mirrored pipelines, as of one pipeline in order.

Each micro-batch moves them: r becomes (1 - m) r + m s. That is linear, so that each direction can
add up the contributions of its own micro-batches, and let them decay for each that the other
direction has in between; with the rest of the values before the step, the two sums are those of one
pipeline that takes the micro-batches in their order, whatever the schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from mpi4py import MPI
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from spbench_core.layout.stages import ModelLayout, Place
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.writes import list_counters
from spbench_parallel.training.gradients import mirrors


class FlatStatistics:
    """The running means and variances of a stage, all in one tensor.

    Attributes:
        norms: The batch normalisations, those of one momentum after each other.
        flat: The tensor; the norms' own buffers are views of it. Empty in a stage without norms.
        keeps: By momentum, how many numbers it has, and the share of them that remains after one
            more micro-batch: 1 - momentum.

    Raises:
        CannotRunError: A norm has no momentum.
    """

    def __init__(self, module: nn.Module) -> None:
        norms = [one for one in module.modules() if isinstance(one, _BatchNorm)]
        self.norms = sorted(
            (one for one in norms if one.running_mean is not None), key=_momentum, reverse=True
        )
        tensors = [
            tensor for norm in self.norms for tensor in (norm.running_mean, norm.running_var)
        ]
        found = [tensor for tensor in tensors if tensor is not None]
        self.flat = torch.cat(found) if found else torch.empty(0)
        parts = iter(self.flat.split([tensor.numel() for tensor in found]) if found else ())
        for norm in self.norms:
            # Through `data`: autograd keeps them for backward, and would refuse that we change
            # them meanwhile, though in training it does not read them.
            norm.running_mean = next(parts).data
            norm.running_var = next(parts).data
        self.keeps = [
            (sum(2 * norm.num_features for norm in alike), 1.0 - momentum)
            for momentum, alike in groupby(self.norms, key=_momentum)
        ]

    def decay(self, steps: int) -> None:
        """Let all of them decay as for so many micro-batches.

        The factors are numbers, not tensors: no kernel is launched that a GPU has yet to load.
        """
        for part, keep in self._parts(self.flat):
            part.mul_(keep**steps)

    def add_decayed(self, before: torch.Tensor, steps: int) -> None:
        """Add what is left of earlier values, in a tensor like `flat`, after so many."""
        pairs = zip(self._parts(self.flat), self._parts(before), strict=True)
        for (part, keep), (values, _) in pairs:
            part.add_(values, alpha=keep**steps)

    def _parts(self, values: torch.Tensor) -> Iterator[tuple[torch.Tensor, float]]:
        sizes = [size for size, _ in self.keeps]
        if sizes:
            yield from zip(values.split(sizes), (keep for _, keep in self.keeps), strict=True)


class MirroredStatistics:
    """The running statistics of a rank's two stages, over a step.

    All ranks must make it, and end a step, together.

    Args:
        world: The ranks of the layout.
        layout: Two mirrored pipelines.
        stages: This rank's places and modules, by direction.
        count: Micro-batches of a step, in both directions.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        layout: ModelLayout,
        stages: Sequence[tuple[Place, nn.Module]],
        count: int,
    ) -> None:
        self._count = count
        self._copies = [FlatStatistics(module) for _, module in stages]
        self._before = [copy.flat.clone() for copy in self._copies]
        self._counters = [list(list_counters(module)) for _, module in stages]
        self._seen = [0] * len(stages)
        self._own = [0] * len(stages)
        places = [place for place, _ in stages]
        self.sharings = mirrors(world, layout, list(zip(places, self._copies, strict=True)))

    def begin(self) -> None:
        """Begin a step: put the values before it aside."""
        for direction, (copy, before) in enumerate(zip(self._copies, self._before, strict=True)):
            before.copy_(copy.flat)
            copy.flat.zero_()
            self._seen[direction] = self._own[direction] = 0

    def pass_others(self, direction: int, micro_batch: int) -> None:
        """Let the sums decay for micro-batches of the other direction, before one of this one."""
        copy = self._copies[direction]
        copy.decay(micro_batch - self._seen[direction])
        self._seen[direction] = micro_batch + 1
        self._own[direction] += 1

    def end(self) -> None:
        """End a step: add both directions' sums and the values before the step."""
        for copy, seen in zip(self._copies, self._seen, strict=True):
            copy.decay(self._count - seen)
        for sharing in self.sharings:
            sharing.sum()
        for several, own in zip(self._counters, self._own, strict=True):
            for counter, number in several:
                counter.add_(number * (self._count - own))
        for copy, before, own in zip(self._copies, self._before, self._own, strict=True):
            copy.add_decayed(before, self._count)
            for norm in copy.norms:
                if norm.num_batches_tracked is not None:
                    norm.num_batches_tracked.add_(self._count - own)


def _momentum(norm: _BatchNorm) -> float:
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
