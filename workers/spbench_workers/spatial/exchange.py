"""The halo exchange: one message to each neighbour, out of buffers that are made once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from mpi4py import MPI

from spbench_workers.layout import Box
from spbench_workers.spatial.partition import HaloTable, Piece


@dataclass(frozen=True, slots=True)
class _Message:
    """A piece's place in this rank's tensor, and the contiguous CPU memory that MPI reads."""

    peer: int
    region: torch.Tensor
    buffer: torch.Tensor
    memory: MPI.buffer


class HaloExchange:
    """Gives a rank the pixels around its tile.

    Write the tile into `tile`, call `run`, read tile and halo from `padded`. Data on a GPU goes
    through memory of the CPU.

    Attributes:
        padded: The tile with its halo, ``batch x channels x rows x cols``.
        tile: The view of `padded` that this rank owns.
        bytes_sent: Bytes that this rank sends in one exchange.
        messages_sent: Messages that this rank sends in one exchange.
        longest_message: Bytes and target of the longest of them; ``(0, -1)`` where there is none.
        received: The views of `padded` that one message each fills.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        table: HaloTable,
        *,
        batch: int,
        channels: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._comm = comm
        self._box = table.padded(comm.rank)
        shape = (batch, channels, self._box.height, self._box.width)
        self.padded = torch.zeros(shape, dtype=dtype, device=device)
        self.tile = self.view(table.tile(comm.rank))
        self._out = [self._message(piece, piece.target) for piece in table.sent_by(comm.rank)]
        self._in = [self._message(piece, piece.source) for piece in table.received_by(comm.rank)]
        self.bytes_sent = sum(message.memory.nbytes for message in self._out)
        self.messages_sent = len(self._out)
        self.longest_message = max(((m.memory.nbytes, m.peer) for m in self._out), default=(0, -1))
        self.received = [message.region for message in self._in]

    def view(self, box: Box) -> torch.Tensor:
        """Return the part of `padded` that holds these pixels of the image."""
        top, left = self._box.rows[0], self._box.cols[0]
        rows = slice(box.rows[0] - top, box.rows[1] - top)
        cols = slice(box.cols[0] - left, box.cols[1] - left)
        return self.padded[:, :, rows, cols]

    def run(self) -> None:
        """Exchange once; returns when the halo is in `padded`. All ranks must call it."""
        comm = self._comm
        requests = [comm.Irecv([m.memory, MPI.BYTE], source=m.peer) for m in self._in]
        for message in self._out:
            message.buffer.copy_(message.region)
            requests.append(comm.Isend([message.memory, MPI.BYTE], dest=message.peer))
        MPI.Request.Waitall(requests)
        for message in self._in:
            self.copy_in(message.region, message.buffer)

    def copy_in(self, region: torch.Tensor, received: torch.Tensor) -> None:
        """Put one received piece where it belongs in `padded`."""
        region.copy_(received)

    def _message(self, piece: Piece, peer: int) -> _Message:
        region = self.view(piece.box)
        pinned = region.device.type == "cuda"
        buffer = torch.empty(region.shape, dtype=region.dtype, pin_memory=pinned)
        memory = MPI.memory.fromaddress(buffer.data_ptr(), buffer.numel() * buffer.element_size())
        return _Message(peer, region, buffer, memory)
