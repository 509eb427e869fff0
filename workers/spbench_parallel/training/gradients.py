"""Gradients of a step, and their allreduce over the ranks that hold the same weights.

- Over tiles nothing is summed: the spatial operators have done it, each tile has the whole image's.
- Members each have the share of their own images, weighted by them: their sum is the whole.
- Replicas have images of their own, equally many: their mean is taken.
- Mirrored pipelines each have half of a step's images: their sum is taken. A rank that holds the
  same stage in both adds its two copies first. Or one of them adds it up for both:
  `spbench_parallel.training.master_comm`.

All gradients of a stage lie in one flat tensor, made once; a parameter's ``grad`` is a view of it.

MPI adds, a GPU's on the host, to which they go through pinned memory; or NCCL does, among GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn

from spbench_core.layout.stages import ModelLayout, Place
from spbench_parallel.groups import create_group
from spbench_parallel.p2p import torch_group
from spbench_parallel.spatial.gradients import allreduce_sum

BUCKET = 1 << 22
"""Numbers in one message: 16 MiB of fp32; larger messages are hardly faster."""

Key = tuple[int, int]
"""A stage, and the tile whose copies are summed; 0 for all members."""


def key_of(layout: ModelLayout, place: Place) -> Key:
    """Return the key of the copies of weights whose gradients are summed with a rank's."""
    return place.stage, place.tile if layout.stages[place.stage].spatial else 0


def sharers(layout: ModelLayout, key: Key, directions: Collection[int]) -> tuple[int, ...]:
    """Return the ranks whose gradients of some directions are summed, ascending, each once."""
    stage, tile = key
    found: set[int] = set()
    for replica in range(layout.replicas):
        for direction in directions:
            ranks = layout.ranks_of(stage, replica, direction)
            found.update({ranks[tile]} if layout.stages[stage].spatial else ranks)
    return tuple(sorted(found))


def sums_gradients(layout: ModelLayout, directions: Collection[int]) -> bool:
    """Return whether any rank's gradients of these directions are summed with another's."""
    stages = range(len(layout.stages))
    return any(len(sharers(layout, (stage, 0), directions)) > 1 for stage in stages)


class Flat(Protocol):
    """Values of a stage that all its copies have, in one flat tensor."""

    @property
    def flat(self) -> torch.Tensor: ...


class FlatGradients:
    """The gradients of a stage's parameters, all in one tensor.

    Attributes:
        flat: The tensor.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = list(module.parameters())
        self.flat = torch.zeros(
            sum(parameter.numel() for parameter in parameters),
            dtype=parameters[0].dtype,
            device=parameters[0].device,
        )
        parts = self.flat.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view(parameter.shape)

    def clear(self) -> None:
        """Set the gradients to zero for a step: backward adds to them."""
        self.flat.zero_()


@dataclass(frozen=True, slots=True)
class WeightSharing:
    """Copies of the same weights: those on this rank, and the ranks of all.

    Attributes:
        comm: The ranks.
        copies: Flat tensors: one; or two, where this rank is its own mirror.
        replicas: The number of replicas over which the mean is taken.
        group: The same ranks, where torch.distributed adds: by NCCL, among GPUs. None: MPI adds.
    """

    comm: MPI.Intracomm
    copies: tuple[Flat, ...]
    replicas: int
    group: torch_group.TorchGroup | None = None

    @property
    def messages(self) -> int:
        """Allreduces of one `sum`: one for each bucket, and none on a single rank."""
        return -(-self.copies[0].flat.numel() // BUCKET) if self.comm.size > 1 else 0

    @property
    def bytes(self) -> int:
        """Bytes that this rank sends in one `sum`, counted as for a ring allreduce.

        Of ``p`` ranks and ``n`` bytes that is ``2 n (p - 1) / p``; of 16-bit numbers, which each
        rank adds for itself, ``n (p - 1)``.
        """
        flat = self.copies[0].flat
        others = self.comm.size - 1
        sent = flat.nbytes * others
        return sent if flat.element_size() == 2 else 2 * sent // self.comm.size

    def sum(self) -> None:
        """Give every copy the sum of all. All ranks of the group must call it."""
        first, *others = (copy.flat for copy in self.copies)
        for other in others:
            first.add_(other)
        if self.comm.size > 1:
            self._sum_over_ranks(first.split(BUCKET))
        if self.replicas > 1:
            first.div_(self.replicas)
        for other in others:
            other.copy_(first)

    def free(self) -> None:
        """Free communicator and group. All ranks of the group must call it."""
        if self.group is not None:
            torch_group.release(self.comm, self.copies[0].flat.device)
        self.comm.Free()

    def _sum_over_ranks(self, buckets: Sequence[torch.Tensor]) -> None:
        # 16-bit numbers are added in fp32, on all ranks in the same order: NCCL adds otherwise.
        if self.group is None or buckets[0].element_size() == 2:
            for bucket in buckets:
                allreduce_sum(self.comm, bucket)
            return
        for pending in [self.group.allreduce(bucket, dist.ReduceOp.SUM) for bucket in buckets]:
            pending.wait()


def sharings(
    world: MPI.Intracomm,
    layout: ModelLayout,
    copies: Sequence[tuple[Place, Flat]],
    *,
    grouped: bool = False,
) -> tuple[WeightSharing, ...]:
    """Return the groups whose gradients are summed, in which this rank is, in their order.

    All ranks must call it, with copies of the same directions: no others are summed.

    Args:
        world: The ranks of the layout.
        layout: The layout.
        copies: This rank's places, and the gradients there.
        grouped: Whether torch.distributed adds: NCCL on GPUs, gloo on the host.

    Raises:
        GroupError: A rank of the group could not join it; raised on all its ranks.
    """
    keyed = [(key_of(layout, place), flat) for place, flat in copies]
    directions = {place.direction for place, _ in copies}
    found = _groups(world, keyed, lambda key: sharers(layout, key, directions), layout.replicas)
    return tuple(map(_joined, found)) if grouped else found


def mirrors(
    world: MPI.Intracomm, layout: ModelLayout, copies: Sequence[tuple[Place, Flat]]
) -> tuple[WeightSharing, ...]:
    """Return the pairs of a stage's copies in both directions of a mirrored layout.

    All ranks must call it.
    """

    def ranks(key: Key) -> tuple[int, ...]:
        stage, index = key
        replica = copies[0][0].replica
        both = (layout.ranks_of(stage, replica, direction) for direction in layout.directions)
        return tuple(sorted({several[index] for several in both}))

    keyed = [((place.stage, place.tile + place.member), flat) for place, flat in copies]
    return _groups(world, keyed, ranks, 1)


def _joined(sharing: WeightSharing) -> WeightSharing:
    """Return copies with a group of torch.distributed; those of a rank alone need none."""
    if sharing.comm.size == 1:
        return sharing
    group = torch_group.acquire(sharing.comm, sharing.copies[0].flat.device)
    return replace(sharing, group=group)


def _groups(
    world: MPI.Intracomm,
    copies: Sequence[tuple[Key, Flat]],
    ranks: Callable[[Key], tuple[int, ...]],
    replicas: int,
) -> tuple[WeightSharing, ...]:
    """Return one group a key, in the order in which a rank must take part in them.

    Ranks of two groups take part in the same order in both, the lesser key first: so that none
    waits for another that waits for it.
    """
    by_key: dict[Key, list[Flat]] = {}
    for key, flat in copies:
        by_key.setdefault(key, []).append(flat)
    return tuple(
        WeightSharing(create_group(world, ranks(key)), tuple(by_key[key]), replicas)
        for key in sorted(by_key)
    )
