"""Gradients of a step, and their allreduce over ranks with the same weights.

- Tiles: no sum is needed. The tiled operators have summed already, so that each tile has the
  gradient of the whole image.
- Members: each has the share of its images, weighted by their number, and the sum is taken.
- Replicas: each has the same number of different images, and the mean is taken.
- Mirrored pipelines: each has half of a step's images, and the sum is taken. A rank that holds the
  same stage in both first adds its two copies. Alternatively one copy adds for both:
  `spbench_parallel.training.master_comm`.

All gradients of a stage are in one flat tensor, created once; a parameter's ``grad`` is a view of
it. MPI sums on the host, and a GPU's gradients get there through pinned memory. Or NCCL sums among
GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn

from spbench_core.layout.stages import ModelLayout, RankCoordinates
from spbench_parallel.groups import create_group
from spbench_parallel.p2p import torch_group
from spbench_parallel.spatial.gradients import allreduce_sum

BUCKET_NUMBERS = 1 << 22
"""Numbers in one message: 16 MiB of fp32. Larger messages are hardly faster."""

Key = tuple[int, int]
"""A stage, and the tile of the copies that are summed; 0 for all members."""


def make_weight_key(layout: ModelLayout, coordinates: RankCoordinates) -> Key:
    """Return the key of the copies of weights that share their gradients."""
    return coordinates.stage, coordinates.tile if layout.stages[coordinates.stage].spatial else 0


def list_ranks_sharing_weights(
    layout: ModelLayout, key: Key, directions: Collection[int]
) -> tuple[int, ...]:
    """Return the ranks that sum gradients of some directions, ascending."""
    stage, tile = key
    sharing: set[int] = set()
    for replica in range(layout.replicas):
        for direction in directions:
            ranks = layout.list_stage_ranks(stage, replica, direction)
            sharing.update({ranks[tile]} if layout.stages[stage].spatial else ranks)
    return tuple(sorted(sharing))


def sums_gradients(layout: ModelLayout, directions: Collection[int]) -> bool:
    """Return whether any ranks sum gradients of these directions."""
    stages = range(len(layout.stages))
    return any(
        len(list_ranks_sharing_weights(layout, (stage, 0), directions)) > 1 for stage in stages
    )


class FlatTensor(Protocol):
    """Values of a stage that all its copies have, in one flat tensor."""

    @property
    def flat_tensor(self) -> torch.Tensor: ...


class FlatGradients:
    """The gradients of a stage's parameters, all in one tensor.

    Attributes:
        flat_tensor: The tensor.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = list(module.parameters())
        self.flat_tensor = torch.zeros(
            sum(parameter.numel() for parameter in parameters),
            dtype=parameters[0].dtype,
            device=parameters[0].device,
        )
        flat_parts = self.flat_tensor.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, flat_parts, strict=True):
            parameter.grad = part.view(parameter.shape)

    def clear(self) -> None:
        """Set the gradients to zero before a step, since backward adds to them."""
        self.flat_tensor.zero_()


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Ranks with copies of the same weights, and the copies of this rank.

    Attributes:
        comm: The ranks.
        local_copies: Flat tensors of this rank: one, or two if it is its own mirror.
        replicas: The number of replicas over which the mean is taken.
        process_group: The same ranks in torch.distributed, which then sums by NCCL among GPUs; None
            if MPI sums.
        bucket_numbers: The most numbers in one message.
    """

    comm: MPI.Intracomm
    local_copies: tuple[FlatTensor, ...]
    replicas: int
    process_group: torch_group.TorchGroup | None = None
    bucket_numbers: int = BUCKET_NUMBERS

    @property
    def messages(self) -> int:
        """Allreduces of one `sum`: one per bucket, and none on a single rank."""
        if self.comm.size == 1:
            return 0
        return math.ceil(self.local_copies[0].flat_tensor.numel() / self.bucket_numbers)

    @property
    def bytes(self) -> int:
        """Bytes that this rank sends in one `sum`, counted as for a ring allreduce.

        With ``p`` ranks and ``n`` bytes it is ``2 n (p - 1) / p``. For 16-bit numbers, which each
        rank adds separately, it is ``n (p - 1)``.
        """
        flat_tensor = self.local_copies[0].flat_tensor
        other_ranks = self.comm.size - 1
        bytes_to_others = flat_tensor.nbytes * other_ranks
        return (
            bytes_to_others
            if flat_tensor.element_size() == 2
            else 2 * bytes_to_others // self.comm.size
        )

    def sum(self) -> None:
        """Set every copy to the sum of all copies. All ranks of the group must call it."""
        first, *others = (copy.flat_tensor for copy in self.local_copies)
        for other in others:
            first.add_(other)
        if self.comm.size > 1:
            self._sum_over_ranks(first.split(self.bucket_numbers))
        if self.replicas > 1:
            first.div_(self.replicas)
        for other in others:
            other.copy_(first)

    def free(self) -> None:
        """Free communicator and group. All ranks of the group must call it."""
        if self.process_group is not None:
            torch_group.release(self.comm, self.local_copies[0].flat_tensor.device)
        self.comm.Free()

    def _sum_over_ranks(self, buckets: Sequence[torch.Tensor]) -> None:
        # 16-bit numbers are added in fp32 and in the same order on all ranks, unlike by NCCL.
        if self.process_group is None or buckets[0].element_size() == 2:
            for bucket in buckets:
                allreduce_sum(self.comm, bucket)
            return
        for pending in [
            self.process_group.allreduce(bucket, dist.ReduceOp.SUM) for bucket in buckets
        ]:
            pending.wait()


def create_weight_groups(
    world: MPI.Intracomm,
    layout: ModelLayout,
    local_copies: Sequence[tuple[RankCoordinates, FlatTensor]],
    *,
    grouped: bool = False,
    bucket_numbers: int = BUCKET_NUMBERS,
) -> tuple[WeightGroup, ...]:
    """Return this rank's groups with summed gradients, in the order of their keys.

    All ranks must call it, with copies of the same directions: only these are summed.

    Args:
        world: The ranks of the layout.
        layout: The layout.
        local_copies: This rank's coordinates, with the gradients there.
        grouped: Whether torch.distributed sums: NCCL on GPUs, gloo on the host.
        bucket_numbers: The most numbers in one message.

    Raises:
        GroupError: A rank of the group could not join it; raised on all its ranks.
    """
    keys_and_copies = [
        (make_weight_key(layout, coordinates), copy) for coordinates, copy in local_copies
    ]
    directions = {coordinates.direction for coordinates, _ in local_copies}
    weight_groups = _create_groups(
        world,
        keys_and_copies,
        lambda key: list_ranks_sharing_weights(layout, key, directions),
        layout.replicas,
        bucket_numbers,
    )
    return tuple(map(_join_group, weight_groups)) if grouped else weight_groups


def create_mirror_groups(
    world: MPI.Intracomm,
    layout: ModelLayout,
    local_copies: Sequence[tuple[RankCoordinates, FlatTensor]],
    *,
    bucket_numbers: int = BUCKET_NUMBERS,
) -> tuple[WeightGroup, ...]:
    """Return the pairs of a stage's copies in both directions of a mirrored layout.

    All ranks must call it. A message has at most ``bucket_numbers`` numbers.
    """

    def find_ranks(key: Key) -> tuple[int, ...]:
        stage, index = key
        replica = local_copies[0][0].replica
        ranks_by_direction = (
            layout.list_stage_ranks(stage, replica, direction) for direction in layout.directions
        )
        return tuple(sorted({stage_ranks[index] for stage_ranks in ranks_by_direction}))

    keys_and_copies = [
        ((coordinates.stage, coordinates.tile + coordinates.member), copy)
        for coordinates, copy in local_copies
    ]
    return _create_groups(world, keys_and_copies, find_ranks, 1, bucket_numbers)


def _join_group(weight_group: WeightGroup) -> WeightGroup:
    """Return copies with a group of torch.distributed, or unchanged on a single rank."""
    if weight_group.comm.size == 1:
        return weight_group
    process_group = torch_group.acquire(
        weight_group.comm, weight_group.local_copies[0].flat_tensor.device
    )
    return replace(weight_group, process_group=process_group)


def _create_groups(
    world: MPI.Intracomm,
    local_copies: Sequence[tuple[Key, FlatTensor]],
    find_ranks: Callable[[Key], tuple[int, ...]],
    replicas: int,
    bucket_numbers: int,
) -> tuple[WeightGroup, ...]:
    # Lesser keys first: ranks of two groups create their communicators, and later sum, in the same
    # order. Otherwise each could wait for the other.
    copies_by_key: dict[Key, list[FlatTensor]] = {}
    for key, copy in local_copies:
        copies_by_key.setdefault(key, []).append(copy)
    return tuple(
        WeightGroup(
            create_group(world, find_ranks(key)),
            tuple(copies_by_key[key]),
            replicas,
            bucket_numbers=bucket_numbers,
        )
        for key in sorted(copies_by_key)
    )
