"""Batch norm over tiles: arguments of torch's kernels, and results.

One rank has the image. CUDA's kernels have other requirements than those of the CPU, so the
arguments are checked.
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


class CallRecorder(TorchDispatchMode):
    """Keep the arguments of calls of the kernel for sums."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is SUMS:
            self.calls.append(args)
        return function(*args, **(kwargs or {}))


def make_norms(height, width):
    """Return the norm over one tile, and torch's norm in fp64.

    Parameters are in fp32, like in models.
    """
    tiled = SpatialBatchNorm2d(
        CHANNELS, tiling=Tiling.of_grid(MPI.COMM_SELF, Grid(1, 1), height, width)
    )
    reference = nn.BatchNorm2d(CHANNELS, dtype=torch.float64)
    with torch.no_grad():
        for parameter in tiled.parameters():
            parameter.copy_(torch.randn(CHANNELS))
    reference.load_state_dict(tiled.state_dict())
    return tiled, reference


def make_pixels(shape, dtype, layout="plain"):
    return torch.randn(shape).to(dtype, memory_format=LAYOUTS[layout])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("size", MAPS, ids=str)
def test_the_weight_has_the_format_of_the_statistics(dtype, size):
    tiled, _ = make_norms(*size)
    pixels = make_pixels((4, CHANNELS, *size), FORMATS[dtype])
    output = tiled(pixels.requires_grad_())
    with CallRecorder() as recorder:
        output.backward(make_pixels(output.shape, output.dtype))
    ((gradient, images, weight, _, _, mean, inverse, train, _, output_mask),) = recorder.calls
    wide = torch.promote_types(FORMATS[dtype], torch.float32)
    assert torch.equal(weight, torch.ones(CHANNELS, dtype=wide))
    # The kernels for maps in channels_last require dense tensors.
    assert all(tensor.is_contiguous() for tensor in (weight, mean, inverse))
    assert mean.dtype == inverse.dtype == wide
    assert gradient.dtype == images.dtype == FORMATS[dtype]
    assert train
    assert output_mask == [False, True, True]


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("size", MAPS, ids=str)
def test_values_and_gradients_agree_with_torch(dtype, size, layout):
    tiled, reference = make_norms(*size)
    dtype, shape = FORMATS[dtype], (4, CHANNELS, *size)
    pixels, gradient = (make_pixels(shape, dtype, layout) for _ in range(2))
    tiled_tensors = []
    expected_tensors = []
    for norm, norm_dtype, tensors in (
        (tiled, dtype, tiled_tensors),
        (reference, torch.float64, expected_tensors),
    ):
        images = pixels.detach().to(norm_dtype).requires_grad_()
        output = norm(images)
        output.backward(gradient.to(norm_dtype))
        parameters = (norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var)
        tensors += [output.detach(), images.grad, *parameters]
    assert [tensor.shape for tensor in tiled_tensors] == [
        tensor.shape for tensor in expected_tensors
    ]
    assert tiled_tensors[0].dtype == tiled_tensors[1].dtype == dtype
    tolerance = {torch.bfloat16: 0.06, torch.float16: 0.01}.get(dtype, 2e-5)
    for tensor, expected in zip(tiled_tensors, expected_tensors, strict=True):
        torch.testing.assert_close(tensor.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_a_rank_without_pixels_calls_no_kernel():
    """CUDA's kernel would raise an error, or start without threads."""
    tiling = Tiling(Twin(1), Partition.from_grid(Grid(1, 1), 4, 4, ranks=[0], size=2))
    assert tiling.tile.empty
    tiled = SpatialBatchNorm2d(CHANNELS, tiling=tiling)
    output = tiled(torch.empty(4, CHANNELS, 0, 0, requires_grad=True))
    with CallRecorder() as recorder:
        output.backward(torch.empty_like(output))
    assert recorder.calls == []
    assert tiled.weight.grad.tolist() == tiled.bias.grad.tolist() == [0.0] * CHANNELS
