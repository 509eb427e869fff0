"""Tilings: the tiles of a tensor on the ranks of a communicator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpi4py import MPI

from spbench_core.layout.partition import Partition
from spbench_core.layout.tiles import Box, Grid


@dataclass(frozen=True)
class Tiling:
    """A tensor cut into tiles, one per rank, and the transport of its halos.

    Attributes:
        comm: The ranks that share the tensor.
        partition: Their tiles.
        transport: The transport of halos. ``auto`` measures at the first use and takes the fastest;
            ``once`` measures at the first use of an exchange of about the same size.
        overlap: Whether operators compute the interior, which needs no halo, while halos travel.
            None: the faster execution is measured at the first tile of each shape; within a host it
            is off, because overlap cannot help there.
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
        """Cut an image for the ranks of a communicator, one tile per rank."""
        partition = Partition.from_grid(grid, height, width, size=comm.size)
        return cls(comm, partition, transport, overlap)

    @property
    def tile(self) -> Box:
        """The pixels of this rank."""
        return self.partition.tile(self.comm.rank)

    def resized(self, height: int, width: int) -> Tiling:
        """Return the same tiles over a tensor of another size."""
        return replace(self, partition=self.partition.resize(height, width))
