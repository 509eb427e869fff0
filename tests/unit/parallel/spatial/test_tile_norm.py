"""Batch norm over tiles: what its backward asks of torch's kernels, and what comes of it.

One rank has the image. What CUDA's kernels want is not what the CPU's do, so that the arguments
are looked at.
"""

import pytest
import torch
from mpi4py import MPI
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from spbench_core.layout.partition import Partition
from spbench_core.layout.tiles import Grid
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.tiling import Tiling
from standins.twin import Twin

CHANNELS = 3
SUMS = torch.ops.aten.native_batch_norm_backward.default
FORMATS = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
FORMATS["fp16"] = torch.float16
MAPS = [(5, 4), (1, 1)]
LAYOUTS = {"plain": torch.contiguous_format, "channels_last": torch.channels_last}


class Recorded(TorchDispatchMode):
    """Keeps the arguments with which the kernel of the sums is called."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is SUMS:
            self.calls.append(args)
        return function(*args, **(kwargs or {}))


def norms(height, width):
    """The norm over one tile, and torch's own in fp64; parameters in fp32, as models have them."""
    tiled = SpatialBatchNorm2d(
        CHANNELS, tiling=Tiling.of_grid(MPI.COMM_SELF, Grid(1, 1), height, width)
    )
    alone = nn.BatchNorm2d(CHANNELS, dtype=torch.float64)
    with torch.no_grad():
        for parameter in tiled.parameters():
            parameter.copy_(torch.randn(CHANNELS))
    alone.load_state_dict(tiled.state_dict())
    return tiled, alone


def pixels_of(shape, dtype, layout="plain"):
    return torch.randn(shape).to(dtype, memory_format=LAYOUTS[layout])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("size", MAPS, ids=str)
def test_the_kernel_of_the_sums_is_given_a_weight_of_the_statistics_format(dtype, size):
    tiled, _ = norms(*size)
    pixels = pixels_of((4, CHANNELS, *size), FORMATS[dtype])
    output = tiled(pixels.requires_grad_())
    with Recorded() as recorded:
        output.backward(pixels_of(output.shape, output.dtype))
    ((gradient, given, weight, _, _, mean, inverse, train, _, wanted),) = recorded.calls
    wide = torch.promote_types(FORMATS[dtype], torch.float32)
    assert torch.equal(weight, torch.ones(CHANNELS, dtype=wide))
    # The kernels for maps with their channels together want these dense.
    assert all(one.is_contiguous() for one in (weight, mean, inverse))
    assert mean.dtype == inverse.dtype == wide
    assert gradient.dtype == given.dtype == FORMATS[dtype]
    assert train
    assert wanted == [False, True, True]


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("size", MAPS, ids=str)
def test_values_and_gradients_are_those_of_torch(dtype, size, layout):
    tiled, alone = norms(*size)
    dtype, shape = FORMATS[dtype], (4, CHANNELS, *size)
    pixels, gradient = (pixels_of(shape, dtype, layout) for _ in range(2))
    found = []
    wanted = []
    for norm, taken, of in ((tiled, dtype, found), (alone, torch.float64, wanted)):
        given = pixels.detach().to(taken).requires_grad_()
        output = norm(given)
        output.backward(gradient.to(taken))
        parameters = (norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var)
        of += [output.detach(), given.grad, *parameters]
    assert [one.shape for one in found] == [one.shape for one in wanted]
    assert found[0].dtype == found[1].dtype == dtype
    near = {torch.bfloat16: 0.06, torch.float16: 0.01}.get(dtype, 2e-5)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=near, atol=near)


@pytest.mark.slow
def test_a_rank_without_pixels_asks_no_kernel_for_sums():
    """CUDA's would refuse, or start with no threads."""
    tiling = Tiling(Twin(1), Partition.from_grid(Grid(1, 1), 4, 4, ranks=[0], size=2))
    assert tiling.tile.empty
    tiled = SpatialBatchNorm2d(CHANNELS, tiling=tiling)
    output = tiled(torch.empty(4, CHANNELS, 0, 0, requires_grad=True))
    with Recorded() as recorded:
        output.backward(torch.empty_like(output))
    assert recorded.calls == []
    assert tiled.weight.grad.tolist() == tiled.bias.grad.tolist() == [0.0] * CHANNELS
