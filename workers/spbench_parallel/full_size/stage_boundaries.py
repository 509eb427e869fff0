"""Joints between stages: sums over all that was sent, and over all that was received.

Each number is multiplied by one that follows from its place in the whole map alone. So the sum over
a map does not depend on how it is cut; a number that is missing, wrong or at another place changes
it. Sums are of bits, and equal or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from mpi4py import MPI

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import RankCoordinates
from spbench_core.layout.tiles import Box
from spbench_core.models.routes import build_tensor_table
from spbench_parallel.pipeline.stage_channel import DirectedRoute, Receiver, Sender
from spbench_parallel.pipeline.stage_runner import StageRunner
from spbench_parallel.plan import ModelPlan
from spbench_parallel.tensors import TensorTuple
from spbench_parallel.verify.worst_error import WorstError

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_PRIMES = (0x5851F42D4C957F2D, 0x14057B7EF767814F, 0x27BB2EE687B0B0FD, 0x369DEA0F31A53F85)
_WORD = 1 << 64


class BoundaryTransfer(NamedTuple):
    """One image of one map that passes a joint in one direction."""

    replica: int
    direction: int
    directed_route: DirectedRoute
    micro_batch: int
    map: int
    image: int

    def __str__(self) -> str:
        return (
            f"{self.directed_route}, replica {self.replica}, direction {self.direction}, "
            f"micro-batch {self.micro_batch}, image {self.image}, map {self.map}"
        )


class BoundaryChecksums:
    """The sums of what this rank has sent and received between stages in a step."""

    def __init__(self, plan: ModelPlan) -> None:
        self._plan = plan
        self._sent: dict[BoundaryTransfer, int] = {}
        self._received: dict[BoundaryTransfer, int] = {}

    def watch(self, place: RankCoordinates, runner: StageRunner) -> None:
        """Sum all that a stage's runner sends and receives from now on."""
        for sender in runner.io.senders:
            _watch_sender(sender, self._note(self._sent, place, sender.directed_route))
        for receiver in runner.io.receivers:
            _watch_receiver(receiver, self._note(self._received, place, receiver.directed_route))

    def compare(self, world: MPI.Intracomm, worst: WorstError) -> None:
        """Compare what arrived here with what was sent. All ranks must call it together."""
        sent = _joined(world.allgather(self._sent))
        received = _joined(world.allgather(self._received))
        for passage in self._received:
            if sent.get(passage) != received[passage]:
                worst.add(1.0, 0.0, f"{passage}: what arrived is not what was sent")
        for passage in self._sent:
            if passage not in received:
                worst.add(1.0, 0.0, f"{passage}: nothing arrived")

    def _note(
        self, table: dict[BoundaryTransfer, int], place: RankCoordinates, way: DirectedRoute
    ) -> Callable[[TensorTuple], None]:
        plan = self._plan
        turn = 0
        flow = build_tensor_table(plan.model).select_flow(way.route.tensors)
        stage = plan.layout.stages[place.stage]
        boxes = [stage.grid.tile(place.tile, data.height, data.width) for data in flow]
        sizes = [batch.size for batch in plan.batches if batch.direction == place.direction]

        def note(tensors: TensorTuple) -> None:
            nonlocal turn
            first, _ = MicroBatch((0, sizes[turn])).member_images(place.member, stage.members)
            for index, (tensor, box) in enumerate(zip(tensors, boxes, strict=True)):
                for image, value in enumerate(_sums(tensor.detach(), box), first):
                    words = place.replica, place.direction, way, turn, index, image
                    table[BoundaryTransfer(*words)] = value
            turn += 1

        return note


def _watch_sender(sender: Sender, note: Callable[[TensorTuple], None]) -> None:
    send = sender.send

    def noted(tensors: TensorTuple) -> None:
        note(tuple(tensors))
        send(tensors)

    sender.send = noted  # type: ignore[method-assign, assignment]


def _watch_receiver(receiver: Receiver, note: Callable[[TensorTuple], None]) -> None:
    take = receiver.take

    def noted() -> TensorTuple:
        tensors = take()
        note(tensors)
        return tensors

    receiver.take = noted  # type: ignore[method-assign]


def _sums(tensor: torch.Tensor, box: Box) -> list[int]:
    """Return the sum of each image's part of a map."""
    factors = _factors(tensor.shape[1], box, tensor.device)
    bits = _BITS[tensor.element_size()]
    return [
        int(((image.contiguous().view(bits).long() + 1) * factors).sum()) % _WORD
        for image in tensor
    ]


def _factors(channels: int, box: Box, device: torch.device) -> torch.Tensor:
    """Return the factors of the places in a box, ``channels x rows x cols``: odd numbers."""
    axes = (0, channels), box.rows, box.cols
    one, two, three = (
        torch.arange(*axis, device=device) * prime
        for axis, prime in zip(axes, _PRIMES, strict=False)
    )
    mixed = (one[:, None, None] ^ two[:, None] ^ three) * _PRIMES[3]
    return (mixed ^ (mixed >> 29)) | 1


def _joined(tables: list[dict[BoundaryTransfer, int]]) -> dict[BoundaryTransfer, int]:
    joined: dict[BoundaryTransfer, int] = {}
    for table in tables:
        for passage, value in table.items():
            joined[passage] = (joined.get(passage, 0) + value) % _WORD
    return joined
