"""GEMS-MASTER's communication between mirrored copies of stages.

Two mirrored pipelines hold each stage twice. Instead of summing the gradients and updating on both
sides, one copy owns the weights, and only it has the optimizer's state. The mirror sends its
gradients when it has the last of them. The owner adds them to its own, updates, and sends the
weights back. That is ``enable_master_comm_opt`` of GEMS-MASTER (Jain et al., SC20), except that the
owner stays the same, because momentum requires it.

The copies of direction 1 are owners. Each rank has one stage in each direction, so it owns one of
its two stages in any layout, and updates and the optimizer's memory are as balanced as the stages.
Direction 1's images come last: in gpipe the gradients of direction 0 have been sent by then.

A stage with both copies on one rank, such as the middle one of an odd number, needs no message.
Over members and replicas only owners are summed. The messages of each stage follow each other in
order, and a rank starts to send gradients before it waits for any, so that ranks cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.stages import ModelLayout, RankCoordinates
from spbench_parallel.device.host_memory import StagingBuffers
from spbench_parallel.device.streams import get_streams, is_gpu
from spbench_parallel.p2p.mpi import mpi_buffer
from spbench_parallel.plan import MIRROR, OWNER
from spbench_parallel.training.gradients import BUCKET_NUMBERS, FlatGradients

_GRADIENTS = 0
_WEIGHTS = 1
# Buckets of gradients that an owner receives ahead: it adds one while the next arrives.
_AHEAD = 2


def mirror_pairs(layout: ModelLayout, stage: int, replica: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of mirror and owner ranks between which gradients are sent.

    Tiles all have the gradients of the whole image, and members' are summed anyway, so that any
    copy may send to any owner. A rank that has both keeps them; the others follow in their order.
    """
    mirror_ranks, owner_ranks = (
        layout.list_stage_ranks(stage, replica, direction) for direction in (MIRROR, OWNER)
    )
    shared_ranks = [rank for rank in mirror_ranks if rank in owner_ranks]
    remaining_ranks = (
        [rank for rank in ranks if rank not in shared_ranks]
        for ranks in (mirror_ranks, owner_ranks)
    )
    return (*zip(shared_ranks, shared_ranks, strict=True), *zip(*remaining_ranks, strict=True))


class FlatWeights:
    """The parameters of a stage, all in one tensor.

    Attributes:
        flat_tensor: The tensor; the parameters are views of it.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = list(module.parameters())
        self.flat_tensor = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        parts = self.flat_tensor.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data = part.view(parameter.shape)


class MasterComm:
    """The exchange of gradients and weights of a rank's two stages.

    All ranks create it together. A GPU's numbers go through pinned memory of the host.

    Args:
        world: The ranks of the layout.
        layout: Two mirrored pipelines.
        stages: This rank's coordinates and modules, by direction.
        gradients: The gradients of each.
        bucket_numbers: The most numbers in one message.

    Attributes:
        bytes: Bytes sent since the start: gradients of this rank's mirror, and weights that it
            owns. In fp32 these are 4 bytes per parameter of each, and none for copies on this rank.
        messages: Messages sent since the start, of at most 16 MiB in fp32.

    Raises:
        ValueError: The layout is not mirrored.
    """

    def __init__(
        self,
        world: MPI.Intracomm,
        layout: ModelLayout,
        stages: Sequence[tuple[RankCoordinates, nn.Module]],
        gradients: Sequence[FlatGradients],
        bucket_numbers: int = BUCKET_NUMBERS,
    ) -> None:
        if not layout.mirrored:
            raise ValueError("one way is between mirrored pipelines, and the layout has but one")
        self.bytes = self.messages = 0
        self._comm = world.Dup()
        self._bucket_numbers = bucket_numbers
        self._gradients = [stage_gradients.flat_tensor for stage_gradients in gradients]
        self._weights = [FlatWeights(module).flat_tensor for _, module in stages]
        mirrored, owned = (
            mirror_pairs(layout, coordinates.stage, coordinates.replica)
            for coordinates, _ in stages
        )
        self._owner_rank = dict(mirrored)[world.rank]
        self._mirror_rank = {owner: mirror for mirror, owner in owned}[world.rank]
        self._sends: list[MPI.Request] = []
        # Not shared with other users: data in it must not change until it is sent.
        device = self._gradients[OWNER].device
        self._memory = StagingBuffers(device) if is_gpu(device) else None
        self._receive_buffer: torch.Tensor | None = None

    def send_gradients(self) -> None:
        """Start to send the gradients of this rank's mirror, after its last micro-batch."""
        if self._owner_rank != self._comm.rank:
            self._send(self._gradients[MIRROR], self._owner_rank, _GRADIENTS)

    def add_gradients(self) -> None:
        """Add the mirror's gradients, from any rank, to those of the owner on this rank."""
        owner_gradients = self._gradients[OWNER]
        if self._mirror_rank == self._comm.rank:
            owner_gradients.add_(self._gradients[MIRROR])
        else:
            self._receive_gradients(owner_gradients)
        self._finish_sends()

    def send_weights(self) -> None:
        """Send the weights that this rank owns to their mirror.

        Receive those of its mirror.
        """
        if self._mirror_rank != self._comm.rank:
            self._send(self._weights[OWNER], self._mirror_rank, _WEIGHTS)
        weights = self._weights[MIRROR]
        if self._owner_rank == self._comm.rank:
            weights.copy_(self._weights[OWNER])
        else:
            memory = self._memory
            on_host = weights if memory is None else memory.reserve(weights.shape, weights.dtype)
            receives = [
                self._comm.Irecv([mpi_buffer(bucket), MPI.BYTE], self._owner_rank, _WEIGHTS)
                for bucket in on_host.split(self._bucket_numbers)
            ]
            MPI.Request.Waitall(receives)
            if memory is not None:
                memory.copy_to_gpu(on_host, weights)
        self._finish_sends()

    def free(self) -> None:
        """Free the communicator. All ranks must call it."""
        self._comm.Free()

    def _send(self, values: torch.Tensor, rank: int, tag: int) -> None:
        on_host = values if self._memory is None else self._memory.download(values)
        for bucket in on_host.split(self._bucket_numbers):
            message = mpi_buffer(bucket)
            self._sends.append(self._comm.Isend([message, MPI.BYTE], rank, tag))
            self.bytes += message.nbytes
            self.messages += 1

    def _receive_gradients(self, owner_gradients: torch.Tensor) -> None:
        buckets = owner_gradients.split(self._bucket_numbers)
        receive_memory = self._receive_memory(len(buckets[0]), owner_gradients)
        read_events = [get_streams(owner_gradients.device).event() for _ in range(_AHEAD)]
        receives: list[MPI.Request] = []

        def post_next() -> None:
            index = len(receives)
            if index < len(buckets):
                # The device must have read the earlier bucket before MPI writes to its memory.
                read_events[index % _AHEAD].synchronize()
                message = receive_memory[index % _AHEAD, : len(buckets[index])]
                receives.append(
                    self._comm.Irecv([mpi_buffer(message), MPI.BYTE], self._mirror_rank, _GRADIENTS)
                )

        for _ in range(_AHEAD):
            post_next()
        for index, bucket in enumerate(buckets):
            receives[index].Wait()
            message = receive_memory[index % _AHEAD, : len(bucket)]
            bucket.add_(message.to(bucket.device, non_blocking=True))
            read_events[index % _AHEAD].record()
            post_next()

    def _receive_memory(self, count: int, like: torch.Tensor) -> torch.Tensor:
        """Return memory for received buckets, ``_AHEAD x count``.

        For a GPU it is pinned and reused.
        """
        if self._memory is None:
            return torch.empty(_AHEAD, count, dtype=like.dtype)
        if self._receive_buffer is None:
            pins = like.device.type == "cuda"
            self._receive_buffer = torch.empty(_AHEAD, count, dtype=like.dtype, pin_memory=pins)
        return self._receive_buffer

    def _finish_sends(self) -> None:
        """Wait until all sends are complete."""
        MPI.Request.Waitall(self._sends)
        self._sends.clear()
