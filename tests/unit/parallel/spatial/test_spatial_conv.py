"""Convolution over tiles: single columns of outputs, on one rank with the image."""

import pytest
import torch
from mpi4py import MPI
from torch.nn import functional

from spbench_core.layout.partition import Partition
from spbench_core.layout.tiles import Grid
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.tiling import Tiling


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("width", "stride"), [(3, 2), (4, 2), (5, 2), (3, 3), (5, 3), (6, 3), (3, 1)]
)
def test_a_single_column_of_outputs_is_correct(width, stride, dtype):
    """Without the workaround, this fails on CPUs with AMX: oneDNN's kernels are wrong."""
    comm = MPI.COMM_SELF
    tiling = Tiling(comm, Partition(Grid(1, 1), 64, width, (0,), 1))
    layer = SpatialConv2d(3, 8, 3, stride, bias=False, tiling=tiling, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(-2, 3, (1, 3, 64, width), generator=generator).to(dtype)
    weight = torch.randint(-2, 3, (8, 3, 3, 3), generator=generator).to(dtype)
    output = layer.local(pixels, (0, 0), weight)
    expected = functional.conv2d(pixels.double(), weight.double(), stride=stride)
    assert output.shape == expected.shape
    assert torch.equal(output.double(), expected)
    layer.free()
