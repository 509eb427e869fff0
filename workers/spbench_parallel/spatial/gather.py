"""Gathers of halos: boxes of an image beyond a rank's tile, with gradients.

A gather gives a rank one or more boxes of the image. It copies the rank's pixels from its tile and
other pixels from received pieces, and fills pixels outside the image. Its adjoint sends the
gradient of every received pixel back to the owner, which adds it to its gradient.

While the pieces travel, a rank can compute on its tile:

    pending = gather.start(tile)
    inner = compute(pending.tile)
    parts = gather.finish(pending)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from mpi4py import MPI
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from spbench_core.layout.partition import Transfers
from spbench_core.layout.tiles import Box
from spbench_parallel.spatial.comm_stats import COMM_STATS
from spbench_parallel.spatial.exchange import (
    Exchange,
    add_overlap,
    is_channels_last,
    make_box_index,
    view_box,
)
from spbench_parallel.spatial.part_sources import find_sources
from spbench_parallel.spatial.tile_buffer import TileBuffer, get_buffer


@dataclass(slots=True)
class PartGradients:
    """Gradients of the gathered parts, kept until they are added to the tile's.

    Attributes:
        tensors: One per part, None for an unused part. The attribute is None before the adjoint
            exchange has started.
    """

    tensors: Sequence[torch.Tensor | None] | None = None


@dataclass(frozen=True, slots=True)
class PendingGather:
    """A gather with a started exchange.

    Attributes:
        tile: This rank's tile, to compute on during the exchange.
        token: Ties the gathered parts to the tile in the autograd graph; holds no values.
        gradients: Receives the gradients of the parts in the backward pass.
        tile_buffer: The buffer that contains the tile, if there is one.
    """

    tile: torch.Tensor
    token: torch.Tensor
    gradients: PartGradients
    tile_buffer: TileBuffer | None


class Gather:
    """A gather of boxes of an image, for tensors of one shape.

    Args:
        comm: The ranks that share the image.
        transfers: The box that each rank needs. It must contain the pixels of this rank's parts
            that are in the image.
        part_boxes: The boxes to gather; they may reach beyond the image and may overlap.
        fill: The value outside the image.
        sample: A tile. All other tiles must have its batch, channels, dtype, device and memory
            format.
        transport: The name of the transport of the pieces.
        owns_gradients: Whether the gather may change the gradients of the parts, because nothing
            else reads them. That holds for the gradients of a convolution's input.

    Attributes:
        fault_hook: Called with received pieces, to inject a fault (``--inject``); mostly None. It
            applies to all gathers.
        gradient_fault_hook: The same for received gradients.
    """

    fault_hook: ClassVar[Callable[[Sequence[torch.Tensor]], None] | None] = None
    gradient_fault_hook: ClassVar[Callable[[Sequence[torch.Tensor]], None] | None] = None

    def __init__(
        self,
        comm: MPI.Intracomm,
        transfers: Transfers,
        part_boxes: Sequence[Box],
        *,
        sample: torch.Tensor,
        fill: float = 0.0,
        transport: str = "auto",
        owns_gradients: bool = False,
    ) -> None:
        self._owns_gradients = owns_gradients
        self.comm = comm
        self.transfers = transfers
        self.part_boxes = tuple(part_boxes)
        self.fill = fill
        self.tile = transfers.owned.tile(comm.rank)
        self._part_sources = [find_sources(box, transfers, comm.rank) for box in self.part_boxes]
        self._sent_indices = [
            make_box_index(self.tile, piece.box) for piece in transfers.list_sent(comm.rank)
        ]
        self.token = sample.detach().new_empty(0)
        self._channels_last = bool(comm.allreduce(is_channels_last(sample), op=MPI.MAX))
        self._batch, self._channels = sample.shape[:2]
        self.forward = self._make_exchange(self._views_to_send(sample.detach()), transport)
        self.forward.unbind()

    @cached_property
    def backward(self) -> Exchange:
        """The adjoint exchange of gradients, created at the first backward pass."""
        self._gradient_pieces = [self.allocate(piece.box) for piece in self.forward.incoming]
        return self._make_exchange(self._gradient_pieces, self.forward.transport, adjoint=True)

    def start(self, tile: torch.Tensor) -> PendingGather:
        """Start to send this tile's pieces; the tile must not change before `finish`."""
        part_gradients = PartGradients()
        tile_buffer = get_buffer(tile)
        if not (tile.requires_grad and torch.is_grad_enabled()):
            self.send(tile)
            return PendingGather(tile, self.token, part_gradients, tile_buffer)
        tile, token = _StartGather.apply(tile, self, part_gradients)
        return PendingGather(tile, token, part_gradients, tile_buffer)

    def finish(self, pending: PendingGather) -> tuple[torch.Tensor, ...]:
        """Wait for the pieces that this rank needs, and return the parts."""
        if not pending.token.requires_grad:
            return self.assemble(pending.tile, pending.tile_buffer)
        parts: tuple[torch.Tensor, ...] = _FinishGather.apply(
            pending.token, pending.tile.detach(), self, pending.gradients, pending.tile_buffer
        )
        return parts

    def free(self) -> None:
        """Free buffers and requests. All ranks must call it."""
        self.forward.free()
        if "backward" in self.__dict__:
            self.backward.free()

    def send(self, tile: torch.Tensor) -> None:
        """Start the exchange of this tile."""
        with COMM_STATS.time_exchange():
            self.forward.bind(self._views_to_send(tile))
            self._start_exchange(self.forward)

    def assemble(
        self, tile: torch.Tensor, tile_buffer: TileBuffer | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Wait for the pieces and assemble the parts, in the tile's buffer if it fits."""
        with COMM_STATS.time_exchange():
            self.forward.wait()
            if Gather.fault_hook is not None:
                Gather.fault_hook(self.forward.received)
            pieces = self.forward.received
            if tile_buffer is not None and self._fits_buffer(tile_buffer):
                completed = self._part_sources[0].complete(tile_buffer, pieces, self.fill)
                parts: tuple[torch.Tensor, ...] = (completed,)
            else:
                parts = tuple(
                    sources.assemble(self.allocate(sources.box), tile, pieces, self.fill)
                    for sources in self._part_sources
                )
            self.forward.release()
            self.forward.unbind()  # release the views, so that the tile can be freed
        return parts

    def send_gradients(self, part_gradients: Sequence[torch.Tensor | None]) -> None:
        """Start to send the gradients of received pixels back to their owners."""
        exchange = self.backward
        with COMM_STATS.time_exchange():
            for piece, piece_gradient in zip(exchange.outgoing, self._gradient_pieces, strict=True):
                piece_gradient.zero_()
                for box, gradient in zip(self.part_boxes, part_gradients, strict=True):
                    add_overlap(piece_gradient, piece.box, gradient, box)
            self._start_exchange(exchange)

    def compute_gradient(self, part_gradients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Return the gradient of the tile: those of the parts, and those received.

        If possible it is a view of the only part's gradient, without a copy.
        """
        only_gradient = (
            part_gradients[0] if self._owns_gradients and len(part_gradients) == 1 else None
        )
        contains_tile = self.tile.intersect(self.part_boxes[0]) == self.tile
        if only_gradient is not None and contains_tile and _is_dense(only_gradient):
            return self._add_received(view_box(only_gradient, self.part_boxes[0], self.tile))
        return self.add_gradients(self.allocate(self.tile).zero_(), part_gradients)

    def add_gradients(
        self, tile_gradient: torch.Tensor, part_gradients: Sequence[torch.Tensor | None]
    ) -> torch.Tensor:
        """Add the gradients of the parts, and those received, to the tile's gradient."""
        with COMM_STATS.time_exchange():
            for box, gradient in zip(self.part_boxes, part_gradients, strict=True):
                add_overlap(tile_gradient, self.tile, gradient, box)
        return self._add_received(tile_gradient)

    def _add_received(self, tile_gradient: torch.Tensor) -> torch.Tensor:
        with COMM_STATS.time_exchange():
            self.backward.wait()
            if Gather.gradient_fault_hook is not None:
                Gather.gradient_fault_hook(self.backward.received)
            for piece, gradient in zip(self.backward.incoming, self.backward.received, strict=True):
                add_overlap(tile_gradient, self.tile, gradient, piece.box)
            self.backward.release()
        return tile_gradient

    def _start_exchange(self, exchange: Exchange) -> None:
        exchange.start()
        traffic = exchange.traffic
        COMM_STATS.messages += traffic.messages
        COMM_STATS.bytes += traffic.bytes

    def _views_to_send(self, tile: torch.Tensor) -> list[torch.Tensor]:
        return [tile[index] for index in self._sent_indices]

    def _fits_buffer(self, tile_buffer: TileBuffer) -> bool:
        return (
            (tile_buffer.box,) == self.part_boxes
            and self._part_sources[0].is_covered
            and tile_buffer.buffer.shape[:2] == (self._batch, self._channels)
            and is_channels_last(tile_buffer.buffer) == self._channels_last
        )

    def allocate(self, box: Box) -> torch.Tensor:
        """Return an uninitialised tensor for a box."""
        layout = torch.channels_last if self._channels_last else torch.contiguous_format
        return torch.empty(
            (self._batch, self._channels, box.height, box.width),
            dtype=self.token.dtype,
            device=self.token.device,
            memory_format=layout,
        )

    def _make_exchange(
        self, outgoing: Sequence[torch.Tensor], transport: str, *, adjoint: bool = False
    ) -> Exchange:
        return Exchange(
            self.comm,
            self.transfers,
            outgoing,
            batch=self._batch,
            channels=self._channels,
            dtype=self.token.dtype,
            device=self.token.device,
            channels_last=self._channels_last,
            transport=transport,
            adjoint=adjoint,
        )


class _StartGather(Function):
    """Identity on the tile. Forward starts the exchange, backward ends its adjoint."""

    @staticmethod
    def forward(
        ctx: Any, tile: torch.Tensor, gather: Gather, part_gradients: PartGradients
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        ctx.gather = gather
        ctx.part_gradients = part_gradients
        gather.send(tile)
        return tile.view_as(tile), gather.token.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, tile_gradient: torch.Tensor | None, _: torch.Tensor | None) -> Any:
        gather = ctx.gather
        part_gradients = ctx.part_gradients.tensors
        if part_gradients is None:
            # This rank has no parts, or does not use them. Others may have gradients for its tile.
            part_gradients = (None,) * len(gather.part_boxes)
            gather.send_gradients(part_gradients)
        ctx.part_gradients.tensors = None
        if tile_gradient is None:
            # The tile itself was not used: all gradients come through the parts.
            return gather.compute_gradient(part_gradients), None, None
        return gather.add_gradients(tile_gradient, part_gradients), None, None


class _FinishGather(Function):
    """Return the parts; backward starts the adjoint exchange.

    Autograd traverses the graph from its last node to its first. Therefore the backward of
    computations between `Gather.start` and `Gather.finish` runs during the adjoint exchange.
    """

    @staticmethod
    def forward(
        ctx: Any,
        token: torch.Tensor,
        tile: torch.Tensor,
        gather: Gather,
        part_gradients: PartGradients,
        tile_buffer: TileBuffer | None,
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.gather = gather
        ctx.part_gradients = part_gradients
        return gather.assemble(tile, tile_buffer)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        ctx.part_gradients.tensors = gradients
        ctx.gather.send_gradients(gradients)
        return ctx.gather.token, None, None, None, None


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is contiguous in either memory format."""
    formats = torch.contiguous_format, torch.channels_last
    return any(tensor.is_contiguous(memory_format=layout) for layout in formats)
