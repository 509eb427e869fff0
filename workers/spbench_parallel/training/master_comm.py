"""GEMS-MASTER's communication: gradients one way, weights the other, between mirrored copies.

Two mirrored pipelines hold each stage twice. Instead of summing the gradients on both sides and
updating both, one copy owns the weights, and it alone has the optimizer's state: the mirror sends
its gradients when it has the last of them, the owner adds them to its own, updates, and sends the
weights back. That is ``enable_master_comm_opt`` of GEMS-MASTER (Jain et al., SC20), except that
the owner stays the same, as momentum asks for.

The copies of direction 1 own. Each rank has one stage in each direction: it owns one of its two,
whatever the layout, so that updates and the optimizer's memory are as even as the stages. And it is
direction 1's images that come last: in gpipe the gradients of direction 0 have left by then.

A stage whose two copies are on one rank, as the middle one of an odd number, needs no message. Over
members and replicas owners alone are summed. Each stage has its copies' messages in their order,
and a rank starts to send gradients before it waits for any: no ranks wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.stages import ModelLayout, Place
from spbench_parallel.device.host_memory import HostMemory
from spbench_parallel.device.streams import get_streams, is_gpu
from spbench_parallel.p2p.memory import memory_of
from spbench_parallel.plan import MIRROR, OWNER
from spbench_parallel.training.gradients import BUCKET, FlatGradients

_GRADIENTS = 0
_WEIGHTS = 1
_AHEAD = 2
"""Buckets of gradients that an owner has memory for: it adds one while the next comes."""


def pairs(layout: ModelLayout, stage: int, replica: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of ranks between which gradients go: each rank of a mirror, and its owner.

    Tiles all have the gradients of the whole image, and members' are summed anyway, so that any
    copy may go to any owner. A rank that has both keeps them; the others follow in their order.
    """
    mirrors, owners = (layout.ranks_of(stage, replica, direction) for direction in (MIRROR, OWNER))
    both = [rank for rank in mirrors if rank in owners]
    rest = ([rank for rank in ranks if rank not in both] for ranks in (mirrors, owners))
    return (*zip(both, both, strict=True), *zip(*rest, strict=True))


class FlatWeights:
    """The parameters of a stage, all in one tensor.

    Attributes:
        flat: The tensor; the parameters are views of it.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = list(module.parameters())
        self.flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        parts = self.flat.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data = part.view(parameter.shape)


class MasterComm:
    """The exchange of gradients and weights of a rank's two stages, made by all ranks together.

    A GPU's numbers go through pinned memory of the host.

    Args:
        world: The ranks of the layout.
        layout: Two mirrored pipelines.
        stages: This rank's places and modules, by direction.
        gradients: The gradients of each.

    Attributes:
        bytes: Bytes sent since the start: gradients of the mirror that this rank has, and weights
            that it owns; 4 bytes a parameter of each in fp32, and none of copies on this rank.
        messages: Messages likewise; none is larger than 16 MiB in fp32.

    Raises:
        ValueError: The layout is not mirrored.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        layout: ModelLayout,
        stages: Sequence[tuple[Place, nn.Module]],
        gradients: Sequence[FlatGradients],
    ) -> None:
        if not layout.mirrored:
            raise ValueError("one way is between mirrored pipelines, and the layout has but one")
        self.bytes = self.messages = 0
        self._comm = world.Dup()
        self._gradients = [one.flat for one in gradients]
        self._weights = [FlatWeights(module).flat for _, module in stages]
        mirrored, owned = (pairs(layout, place.stage, place.replica) for place, _ in stages)
        self._owner = dict(mirrored)[world.rank]
        self._mirror = {owner: mirror for mirror, owner in owned}[world.rank]
        self._sent: list[MPI.Request] = []
        # Its own: what is sent must stay where it is until it has gone.
        device = self._gradients[OWNER].device
        self._memory = HostMemory(device) if is_gpu(device) else None
        self._arrived: torch.Tensor | None = None

    def send_gradients(self) -> None:
        """Start to send the gradients of this rank's mirror: their last micro-batch is done."""
        if self._owner != self._comm.rank:
            self._send(self._gradients[MIRROR], self._owner, _GRADIENTS)

    def add_gradients(self) -> None:
        """Add the mirror's gradients, from any rank, to those of the owner on this rank."""
        total = self._gradients[OWNER]
        if self._mirror == self._comm.rank:
            total.add_(self._gradients[MIRROR])
        else:
            self._take_gradients(total)
        self._finish()

    def send_weights(self) -> None:
        """Send the weights that this rank owns to their mirror; receive those of its own mirror."""
        if self._mirror != self._comm.rank:
            self._send(self._weights[OWNER], self._mirror, _WEIGHTS)
        taken = self._weights[MIRROR]
        if self._owner == self._comm.rank:
            taken.copy_(self._weights[OWNER])
        else:
            memory = self._memory
            on_host = taken if memory is None else memory.reserve(taken.shape, taken.dtype)
            coming = [
                self._comm.Irecv([memory_of(bucket), MPI.BYTE], self._owner, _WEIGHTS)
                for bucket in on_host.split(BUCKET)
            ]
            MPI.Request.Waitall(coming)
            if memory is not None:
                memory.put(on_host, taken)
        self._finish()

    def free(self) -> None:
        """Free the communicator. All ranks must call it."""
        self._comm.Free()

    def _send(self, flat: torch.Tensor, rank: int, tag: int) -> None:
        on_host = flat if self._memory is None else self._memory.fetch(flat)
        for bucket in on_host.split(BUCKET):
            leaving = memory_of(bucket)
            self._sent.append(self._comm.Isend([leaving, MPI.BYTE], rank, tag))
            self.bytes += leaving.nbytes
            self.messages += 1

    def _take_gradients(self, total: torch.Tensor) -> None:
        buckets = total.split(BUCKET)
        memory = self._arriving(len(buckets[0]), total)
        read = [get_streams(total.device).event() for _ in range(_AHEAD)]
        coming: list[MPI.Request] = []

        def post() -> None:
            turn = len(coming)
            if turn < len(buckets):
                read[turn % _AHEAD].synchronize()
                place = memory[turn % _AHEAD, : len(buckets[turn])]
                coming.append(
                    self._comm.Irecv([memory_of(place), MPI.BYTE], self._mirror, _GRADIENTS)
                )

        for _ in range(_AHEAD):
            post()
        for turn, bucket in enumerate(buckets):
            coming[turn].Wait()
            place = memory[turn % _AHEAD, : len(bucket)]
            bucket.add_(place.to(bucket.device, non_blocking=True))
            read[turn % _AHEAD].record()
            post()

    def _arriving(self, count: int, like: torch.Tensor) -> torch.Tensor:
        """Return memory for arriving buckets, ``_AHEAD x count``: kept, and pinned, for a GPU."""
        if self._memory is None:
            return torch.empty(_AHEAD, count, dtype=like.dtype)
        if self._arrived is None:
            pins = like.device.type == "cuda"
            self._arrived = torch.empty(_AHEAD, count, dtype=like.dtype, pin_memory=pins)
        return self._arrived

    def _finish(self) -> None:
        """Wait until all sends are complete."""
        MPI.Request.Waitall(self._sent)
        self._sent.clear()
