"""Stage boundaries: checksums of all sent values, and of all received ones.

Each value is multiplied by a factor that depends only on its position in the whole map. So the sum
over a map is the same for any tiling. A value that is missing, wrong or at another position changes
it. Checksums are computed from the bits of values, and compared for equality.
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

_INTEGER_DTYPES = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types that read the bits of a value, by its bytes."""
_PRIMES = (0x5851F42D4C957F2D, 0x14057B7EF767814F, 0x27BB2EE687B0B0FD, 0x369DEA0F31A53F85)
_MODULUS = 1 << 64


class BoundaryTransfer(NamedTuple):
    """One image of one map that crosses a stage boundary in one direction."""

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


Checksums = dict[BoundaryTransfer, int]


class BoundaryChecksums:
    """The checksums of tensors that this rank sends and receives between stages."""

    def __init__(self, plan: ModelPlan) -> None:
        self._plan = plan
        self._sent_checksums: Checksums = {}
        self._received_checksums: Checksums = {}

    def watch(self, coordinates: RankCoordinates, runner: StageRunner) -> None:
        """Add up everything that a stage's runner sends and receives from now on."""
        for sender in runner.io.senders:
            add = self._create_adder(self._sent_checksums, coordinates, sender.directed_route)
            _watch_sender(sender, add)
        for receiver in runner.io.receivers:
            add = self._create_adder(self._received_checksums, coordinates, receiver.directed_route)
            _watch_receiver(receiver, add)

    def compare(self, world: MPI.Intracomm, worst: WorstError) -> None:
        """Compare received with sent checksums. All ranks must call it together."""
        sent_checksums = _merge(world.allgather(self._sent_checksums))
        received_checksums = _merge(world.allgather(self._received_checksums))
        for transfer in self._received_checksums:
            if sent_checksums.get(transfer) != received_checksums[transfer]:
                worst.add(1.0, 0.0, f"{transfer}: what arrived is not what was sent")
        for transfer in self._sent_checksums:
            if transfer not in received_checksums:
                worst.add(1.0, 0.0, f"{transfer}: nothing arrived")

    def _create_adder(
        self, checksums: Checksums, coordinates: RankCoordinates, directed_route: DirectedRoute
    ) -> Callable[[TensorTuple], None]:
        """Return a function that adds the checksums of the next micro-batch's tensors."""
        plan = self._plan
        micro_batch = 0
        flow = build_tensor_table(plan.model).select_flow(directed_route.route.tensors)
        stage = plan.layout.stages[coordinates.stage]
        boxes = [stage.grid.tile(coordinates.tile, map_.height, map_.width) for map_ in flow]
        batch_sizes = [
            batch.size for batch in plan.batches if batch.direction == coordinates.direction
        ]

        def add(tensors: TensorTuple) -> None:
            nonlocal micro_batch
            first_image, _ = MicroBatch((0, batch_sizes[micro_batch])).member_images(
                coordinates.member, stage.members
            )
            for map_index, (tensor, box) in enumerate(zip(tensors, boxes, strict=True)):
                for image, checksum in enumerate(
                    _compute_checksums(tensor.detach(), box), first_image
                ):
                    transfer = BoundaryTransfer(
                        coordinates.replica,
                        coordinates.direction,
                        directed_route,
                        micro_batch,
                        map_index,
                        image,
                    )
                    checksums[transfer] = checksum
            micro_batch += 1

        return add


def _watch_sender(sender: Sender, add: Callable[[TensorTuple], None]) -> None:
    send = sender.send

    def add_and_send(tensors: TensorTuple) -> None:
        add(tuple(tensors))
        send(tensors)

    sender.send = add_and_send  # type: ignore[method-assign, assignment]


def _watch_receiver(receiver: Receiver, add: Callable[[TensorTuple], None]) -> None:
    take = receiver.take

    def take_and_add() -> TensorTuple:
        tensors = take()
        add(tensors)
        return tensors

    receiver.take = take_and_add  # type: ignore[method-assign]


def _compute_checksums(tensor: torch.Tensor, box: Box) -> list[int]:
    """Return the checksum of each image's part of a map."""
    position_factors = _make_position_factors(tensor.shape[1], box, tensor.device)
    integer_dtype = _INTEGER_DTYPES[tensor.element_size()]
    return [
        int(((image.contiguous().view(integer_dtype).long() + 1) * position_factors).sum())
        % _MODULUS
        for image in tensor
    ]


def _make_position_factors(channels: int, box: Box, device: torch.device) -> torch.Tensor:
    """Return an odd factor for each position of a box, ``channels x rows x cols``."""
    axes = (0, channels), box.rows, box.cols
    by_channel, by_row, by_col = (
        torch.arange(*axis, device=device) * prime
        for axis, prime in zip(axes, _PRIMES, strict=False)
    )
    mixed = (by_channel[:, None, None] ^ by_row[:, None] ^ by_col) * _PRIMES[3]
    return (mixed ^ (mixed >> 29)) | 1


def _merge(checksums_by_rank: list[Checksums]) -> Checksums:
    """Return the checksums of whole images, from those of all ranks' parts."""
    merged: Checksums = {}
    for rank_checksums in checksums_by_rank:
        for transfer, checksum in rank_checksums.items():
            merged[transfer] = (merged.get(transfer, 0) + checksum) % _MODULUS
    return merged
