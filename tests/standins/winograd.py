"""A stand-in for a GPU that convolves in fp32 by Winograd's algorithm F(4x4, 3x3).

While it is active, each convolution in fp32 of 3x3 kernels with stride 1 is computed in blocks of
4x4 outputs, forward and backward, with the points 0, 1, -1, 2, -2 and infinity (Lavin and Gray,
CVPR 2016). All other convolutions and formats are not changed. cuDNN has this algorithm for all
three passes (``WINOGRAD_NONFUSED``). Whether a GPU chooses it depends on shape and version.

Only the rounding is that of a GPU: sums are in the order of the device that runs it.
"""

import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

TILE = 6
BLOCK = 4
INPUT = [
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
]
"""B transposed: tiles of pixels are multiplied by it."""
KERNEL = [
    [1 / 4, 0, 0],
    [-1 / 6, -1 / 6, -1 / 6],
    [-1 / 6, 1 / 6, -1 / 6],
    [1 / 24, 1 / 12, 1 / 6],
    [1 / 24, -1 / 12, 1 / 6],
    [0, 0, 1],
]
"""G: kernels are multiplied by it."""
OUTPUT = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]
"""A transposed: the products are multiplied by it."""


def winograd(images, kernels, format_=torch.float32):
    """Convolve images with sides of 4 n + 2; ``format_`` is the one of the factors."""
    pixels = _transform(INPUT, _split_into_tiles(images.float())).to(format_).float()
    taps = _transform(KERNEL, kernels.float()).to(format_).float()
    sums = _transform(OUTPUT, torch.einsum("bcyxij,ocij->boyxij", pixels, taps))
    batch, channels, rows, cols = sums.shape[:4]
    return sums.permute(0, 1, 2, 4, 3, 5).reshape(batch, channels, BLOCK * rows, BLOCK * cols)


class WinogradConvolutions(TorchDispatchMode):
    """Convolves by Winograd's algorithm if it can.

    Attributes:
        forward: The number of convolutions that were computed by it.
        backward: The number of their gradients that were computed by it.
    """

    def __init__(self):
        super().__init__()
        self.forward = 0
        self.backward = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.partition("::")[2]
        if name == "convolution" and _is_suitable(*args[:2], *args[3:]):
            self.forward += 1
            return _forward(args[0], args[1], args[2], args[4])
        if name == "convolution_backward" and _is_suitable(*args[1:3], *args[4:10]):
            self.backward += 1
            return _backward(args[0], args[1], args[2], args[5], args[10])
        return function(*args, **(kwargs or {}))


def _is_suitable(pixels, weight, stride, padding, dilation, transposed, _, groups):
    sides = [size + 2 * pad for size, pad in zip(pixels.shape[2:], padding, strict=True)]
    return (
        pixels.dtype == weight.dtype == torch.float32
        and weight.shape[2:] == (3, 3)
        and set(stride) == set(dilation) == {1}
        and not transposed
        and groups == 1
        and pixels.numel() > 0
        and min(sides) >= 3
        and max(padding) <= 2
    )


def _forward(pixels, weight, bias, padding):
    rows, cols = (size + 2 * pad - 2 for size, pad in zip(pixels.shape[2:], padding, strict=True))
    sums = winograd(_pad(pixels, padding, rows, cols), weight)[:, :, :rows, :cols].contiguous()
    return sums if bias is None else sums + bias[:, None, None]


def _backward(gradient, pixels, weight, padding, output_mask):
    pixel_gradient = None
    weight_gradient = None
    bias_gradient = None
    if output_mask[0]:
        flipped = weight.flip(2, 3).transpose(0, 1).contiguous()
        pixel_gradient = _forward(gradient, flipped, None, [2 - pad for pad in padding])
    if output_mask[1]:
        weight_gradient = _compute_weight_gradient(gradient, pixels, padding)
    if output_mask[2]:
        bias_gradient = gradient.sum((0, 2, 3))
    return pixel_gradient, weight_gradient, bias_gradient


def _compute_weight_gradient(gradient, pixels, padding):
    """Compute F(3x3, 4x4): blocks of the gradient are kernels; sum over tiles."""
    rows, cols = gradient.shape[2:]
    tiles = _transform(INPUT, _split_into_tiles(_pad(pixels, padding, rows, cols)))
    gradient = functional.pad(gradient, (0, -cols % BLOCK, 0, -rows % BLOCK))
    blocks = gradient.unfold(2, BLOCK, BLOCK).unfold(3, BLOCK, BLOCK)
    blocks = _transform(_transpose(OUTPUT), blocks)
    sums = torch.einsum("bcyxij,boyxij->ocij", tiles, blocks)
    return _transform(_transpose(KERNEL), sums)


def _pad(pixels, padding, rows, cols):
    """Return pixels with padding, and with zeros up to whole blocks of outputs."""
    above, left = padding
    return functional.pad(pixels, (left, left + -cols % BLOCK, above, above + -rows % BLOCK))


def _split_into_tiles(pixels):
    return pixels.unfold(2, TILE, BLOCK).unfold(3, TILE, BLOCK)


def _transform(matrix, values):
    factor = torch.tensor(matrix, dtype=torch.float32)
    return factor @ values @ factor.T


def _transpose(matrix):
    return [list(column) for column in zip(*matrix, strict=True)]
