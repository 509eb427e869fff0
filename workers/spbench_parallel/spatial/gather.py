"""Gathers of halos: parts of an image beyond a rank's tile, with gradients sent back to the owners.

A gather gives a rank one or more boxes of the image. It copies the rank's own pixels from its tile
and others from the pieces that ranks send, and fills pixels outside the image. Its adjoint
sends the gradient of every received pixel back to the owner, which adds it to its own.

In between, a rank can compute on its tile while the pieces travel:

    flight = gather.start(tile)
    inner = compute(flight.tile)
    parts = gather.finish(flight)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    box_index,
    is_channels_last,
    view_box,
)
from spbench_parallel.spatial.part_sources import find_sources
from spbench_parallel.spatial.tile_buffer import TileBuffer, get_buffer
from spbench_parallel.spatial.tiling import Tiling


@dataclass(slots=True)
class PartGradients:
    """Gradients of the gathered parts, kept until they are added to the tile's.

    Attributes:
        tensors: One for each part; None where nothing depends on it. None at all before the
            adjoint exchange has started.
    """

    tensors: Sequence[torch.Tensor | None] | None = None


@dataclass(frozen=True, slots=True)
class PendingGather:
    """A gather in flight: its exchange has started.

    Attributes:
        tile: This rank's tile, to compute on meanwhile.
        token: Ties the gathered parts to the tile in autograd's graph; holds no values.
        gradients: Holds the gradients of the parts for the backward pass.
        padded: The buffer that the tile lies in, where there is one.
    """

    tile: torch.Tensor
    token: torch.Tensor
    gradients: PartGradients
    padded: TileBuffer | None


class Gather:
    """A gather of boxes of an image, for tensors of one shape.

    Args:
        comm: The ranks that share the image.
        table: The box that each rank needs; this rank's parts, as far as they lie in the image,
            must lie in its box.
        parts: The boxes to gather; they may reach beyond the image and may overlap.
        fill: The value outside the image.
        sample: A tile: its batch, channels, dtype, device and memory format are those of all
            others.
        transport: The name of the transport of the pieces.
        takes_gradients: Whether the parts' gradients are nobody else's, so that they may be
            changed: those of a convolution's input are.

    Attributes:
        spoil: The fault that ``--inject`` plants in received pieces, of all gathers; mostly None.
        spoil_gradients: Likewise, in received gradients.
    """

    fault_hook: ClassVar[Callable[[Sequence[torch.Tensor]], None] | None] = None
    gradient_fault_hook: ClassVar[Callable[[Sequence[torch.Tensor]], None] | None] = None

    def __init__(
        self,
        comm: MPI.Intracomm,
        table: Transfers,
        parts: Sequence[Box],
        *,
        sample: torch.Tensor,
        fill: float = 0.0,
        transport: str = "auto",
        owns_gradients: bool = False,
    ) -> None:
        self._takes_gradients = owns_gradients
        self.comm = comm
        self.table = table
        self.parts = tuple(parts)
        self.fill = fill
        self.tile = table.owned.tile(comm.rank)
        self._sources = [find_sources(box, table, comm.rank) for box in self.parts]
        self._sent = [box_index(self.tile, piece.box) for piece in table.list_sent(comm.rank)]
        self.token = sample.detach().new_empty(0)
        self._channels_last = bool(comm.allreduce(is_channels_last(sample), op=MPI.MAX))
        self._batch, self._channels = sample.shape[:2]
        self.forward = self._exchange(self._outgoing(sample.detach()), transport)
        self.forward.unbind()

    @cached_property
    def backward(self) -> Exchange:
        """The adjoint exchange of gradients, made at the first backward pass."""
        self._gradients = [self.allocate(piece.box) for piece in self.forward.expected]
        return self._exchange(self._gradients, self.forward.transport, adjoint=True)

    def start(self, tile: torch.Tensor) -> PendingGather:
        """Start to send this tile's pieces; the tile must not change before `finish`."""
        gradients = PartGradients()
        padded = get_buffer(tile)
        if not (tile.requires_grad and torch.is_grad_enabled()):
            self.send(tile)
            return PendingGather(tile, self.token, gradients, padded)
        tile, token = _Start.apply(tile, self, gradients)
        return PendingGather(tile, token, gradients, padded)

    def finish(self, flight: PendingGather) -> tuple[torch.Tensor, ...]:
        """Wait for the pieces that this rank needs; return the parts."""
        if not flight.token.requires_grad:
            return self.assemble(flight.tile, flight.padded)
        parts: tuple[torch.Tensor, ...] = _Finish.apply(
            flight.token, flight.tile.detach(), self, flight.gradients, flight.padded
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
            self.forward.bind(self._outgoing(tile))
            self._start(self.forward)

    def assemble(
        self, tile: torch.Tensor, padded: TileBuffer | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Wait for the pieces and put the parts together: in the tile's own buffer, if it fits."""
        with COMM_STATS.time_exchange():
            self.forward.wait()
            if Gather.fault_hook is not None:
                Gather.fault_hook(self.forward.received)
            pieces = self.forward.received
            if padded is not None and self._fits(padded):
                completed = self._sources[0].complete(padded, pieces, self.fill)
                parts: tuple[torch.Tensor, ...] = (completed,)
            else:
                parts = tuple(
                    sources.assemble(self.allocate(sources.box), tile, pieces, self.fill)
                    for sources in self._sources
                )
            self.forward.release()
            self.forward.unbind()  # the tile lives no longer for having been sent
        return parts

    def send_gradients(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Start to send the gradients of received pixels back to their owners."""
        exchange = self.backward
        with COMM_STATS.time_exchange():
            for piece, total in zip(exchange.sent, self._gradients, strict=True):
                total.zero_()
                for box, gradient in zip(self.parts, gradients, strict=True):
                    add_overlap(total, piece.box, gradient, box)
            self._start(exchange)

    def compute_gradient(self, gradients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Return the gradient of the tile: the sum of the parts' and of those that others send.

        Where it may be, it lies within that of the one part, and nothing is copied.
        """
        first = gradients[0] if self._takes_gradients and len(gradients) == 1 else None
        holds = self.tile.intersect(self.parts[0]) == self.tile
        if first is not None and holds and _is_dense(first):
            return self._add_received(view_box(first, self.parts[0], self.tile))
        return self.add_gradients(self.allocate(self.tile).zero_(), gradients)

    def add_gradients(
        self, total: torch.Tensor, gradients: Sequence[torch.Tensor | None]
    ) -> torch.Tensor:
        """Add the gradients of the parts, and those that others send, to that of the tile."""
        with COMM_STATS.time_exchange():
            for box, gradient in zip(self.parts, gradients, strict=True):
                add_overlap(total, self.tile, gradient, box)
        return self._add_received(total)

    def _add_received(self, total: torch.Tensor) -> torch.Tensor:
        with COMM_STATS.time_exchange():
            self.backward.wait()
            if Gather.gradient_fault_hook is not None:
                Gather.gradient_fault_hook(self.backward.received)
            for piece, gradient in zip(self.backward.expected, self.backward.received, strict=True):
                add_overlap(total, self.tile, gradient, piece.box)
            self.backward.release()
        return total

    def _start(self, exchange: Exchange) -> None:
        exchange.start()
        traffic = exchange.traffic
        COMM_STATS.messages += traffic.messages
        COMM_STATS.bytes += traffic.bytes

    def _outgoing(self, tile: torch.Tensor) -> list[torch.Tensor]:
        return [tile[index] for index in self._sent]

    def _fits(self, padded: TileBuffer) -> bool:
        return (
            (padded.box,) == self.parts
            and self._sources[0].covered
            and padded.buffer.shape[:2] == (self._batch, self._channels)
            and is_channels_last(padded.buffer) == self._channels_last
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

    def _exchange(
        self, outgoing: Sequence[torch.Tensor], transport: str, *, adjoint: bool = False
    ) -> Exchange:
        return Exchange(
            self.comm,
            self.table,
            outgoing,
            batch=self._batch,
            channels=self._channels,
            dtype=self.token.dtype,
            device=self.token.device,
            channels_last=self._channels_last,
            transport=transport,
            adjoint=adjoint,
        )


class GatherCache:
    """Gathers of the same boxes, one for each shape, number format and device of tiles.

    Args:
        tiling: The tiles of the image.
        table: As for `Gather`.
        parts: As for `Gather`.
        fill: The value outside the image.
        takes_gradients: As for `Gather`.
    """

    def __init__(
        self,
        tiling: Tiling,
        table: Transfers,
        parts: Sequence[Box],
        fill: float = 0.0,
        *,
        owns_gradients: bool = False,
    ) -> None:
        self._tiling = tiling
        self._table = table
        self._parts = parts
        self._fill = fill
        self._takes_gradients = owns_gradients
        self._made: dict[Any, Gather] = {}

    def __iter__(self) -> Iterator[Gather]:
        return iter(self._made.values())

    def get(self, tile: torch.Tensor) -> Gather:
        """Return the gather for tiles like this one; all ranks must ask together."""
        key = (tile.shape[0], tile.shape[1], tile.dtype, tile.device)
        if key not in self._made:
            self._made[key] = Gather(
                self._tiling.comm,
                self._table,
                self._parts,
                sample=tile,
                fill=self._fill,
                transport=self._tiling.transport,
                owns_gradients=self._takes_gradients,
            )
        return self._made[key]

    def free(self) -> None:
        """Free all buffers and requests. All ranks must call it."""
        for gather in self:
            gather.free()
        self._made.clear()


class _Start(Function):
    """Identity; the exchange starts, and backward its adjoint ends."""

    @staticmethod
    def forward(
        ctx: Any, tile: torch.Tensor, gather: Gather, gradients: PartGradients
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        ctx.gather = gather
        ctx.gradients = gradients
        gather.send(tile)
        return tile.view_as(tile), gather.token.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor | None, _: torch.Tensor | None) -> Any:
        gather = ctx.gather
        parts = ctx.gradients.tensors
        if parts is None:
            # This rank has no parts, or uses none; others may still have gradients for its tile.
            parts = (None,) * len(gather.parts)
            gather.send_gradients(parts)
        ctx.gradients.tensors = None
        if gradient is None:
            # Nothing was computed on the tile itself: all that comes, comes through the parts.
            return gather.compute_gradient(parts), None, None
        return gather.add_gradients(gradient, parts), None, None


class _Finish(Function):
    """The parts; backward the adjoint exchange starts.

    Autograd goes through a graph from its last node to its first: what was computed on the tile
    between `Gather.start` and `Gather.finish` has its backward while the adjoint is under way.
    """

    @staticmethod
    def forward(
        ctx: Any,
        token: torch.Tensor,
        tile: torch.Tensor,
        gather: Gather,
        gradients: PartGradients,
        padded: TileBuffer | None,
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.gather = gather
        ctx.gradients = gradients
        return gather.assemble(tile, padded)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        ctx.gradients.tensors = gradients
        ctx.gather.send_gradients(gradients)
        return ctx.gather.token, None, None, None, None


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether all values of a tensor lie side by side, in either memory format."""
    formats = torch.contiguous_format, torch.channels_last
    return any(tensor.is_contiguous(memory_format=each) for each in formats)
