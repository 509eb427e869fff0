"""Tilings: a tensor cut into tiles, as the operators are told of their input."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpi4py import MPI

from spbench_core.layout.partition import Partition
from spbench_core.layout.tiles import Box, Grid


@dataclass(frozen=True)
class Tiling:
    """A tensor cut into tiles, one a rank, and the transport of its halos.

    Attributes:
        comm: The ranks that share the tensor.
        partition: Their tiles.
        transport: The transport of halos; ``auto`` takes the fastest, as measured at the first use,
            ``once`` as measured at the first use of an exchange of about its size.
        overlap: Whether operators compute the interior, which needs no halo, while halos travel;
            None: where that is the faster way, as measured at the first tile of each shape; within
            a host nothing could be hidden.
    """

    comm: MPI.Intracomm
    partition: Partition
    transport: str = "auto"
    overlap: bool | None = None

    @classmethod
    def of_grid(
        cls,
        comm: MPI.Intracomm,
        grid: Grid,
        height: int,
        width: int,
        *,
        transport: str = "auto",
        overlap: bool | None = None,
    ) -> Tiling:
        """Cut an image for the ranks of a communicator, one tile each."""
        partition = Partition.from_grid(grid, height, width, size=comm.size)
        return cls(comm, partition, transport, overlap)

    @property
    def tile(self) -> Box:
        """The pixels of this rank."""
        return self.partition.tile(self.comm.rank)

    def resized(self, height: int, width: int) -> Tiling:
        """Return the same tiles over a tensor of another size."""
        return replace(self, partition=self.partition.resize(height, width))
