"""The error of Winograd's convolution F(4x4, 3x3), which a GPU may choose in fp32.

For kernels of 3x3 with stride 1, cuDNN may compute blocks of 4x4 outputs from tiles of 6x6 pixels
(Lavin and Gray, CVPR 2016). PyTorch filters cuDNN's engines by determinism, reduced precision and
tensor cores only (Conv_v8.cpp), so this algorithm remains. With the points 0, 1, -1, 2, -2 and
infinity, a block of outputs is

    y = A^T M A,   M = sum over channels of (G g G^T) * (B^T d B)

with ``g`` the kernel, ``d`` the tile and ``*`` the product by elements. An element of ``M`` is a
sum like any other: its error is ``a`` times its magnitude. A^T M A amplifies these errors:

- By Cauchy and Schwarz, the magnitude of element (p, q) of ``M`` is at most
  |G_p| |G_q| |g| |B_p| |B_q| |d|. G_p and B_p are rows of G and B^T, and |g| and |d| are lengths
  over all channels.
- Output (i, j) adds the elements of ``M`` with the factors A_pi A_qj. Independent errors add by
  their squares, so the error of output (i, j) is at most K_i K_j a |g| |d| with

      K_i^2 = sum over p of (A_pi |G_p| |B_p|)^2 = 9.0, 8.6, 17.3 and 94.3 for i = 0 to 3

- The largest product is K_3^2 = 283/3. Barabasz, Anderson, Soodhalter and Gregg (ACM Transactions
  on Mathematical Software 46, 2020) prove bounds for any rounding by norms of the same matrices.

The gradient of the input is such a convolution too: it has the flipped kernel and the same factor.
The gradient of the weights keeps its bound. G and A are exchanged there, with 96.8, 19.4 and 13.1,
but its bound has `STATISTICS_SLACK`. An emulation stays below 0.06 of it, even for pixels that
resemble a row of B^T.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from spbench_parallel.device.streams import is_gpu
from spbench_parallel.full_size.bound import Rounding
from spbench_parallel.full_size.regions import WindowAxis
from spbench_parallel.precision.formats import FP32

AMPLIFICATION = 283 / 3
"""The largest K_i K_j; see the derivation above."""
REACH = 3
"""The largest distance between two outputs of a block of 4x4, in rows and in columns."""


def may_use_winograd(device: torch.device, rounding: Rounding) -> bool:
    """Return whether a device may use Winograd's algorithm in a format.

    TF32 and 16 bits round so much more that their bounds hold unchanged.
    """
    return is_gpu(device) and rounding == Rounding.from_precision(FP32)


def fits_winograd(axes: tuple[WindowAxis, WindowAxis]) -> bool:
    """Return whether a convolution's windows are 3x3, with stride and dilation 1."""
    return all((axis.kernel, axis.stride, axis.dilation) == (3, 1, 1) for axis in axes)


def amplify(squares: torch.Tensor) -> torch.Tensor:
    """Return the squares of magnitudes for Winograd's convolution.

    The windows at the corners of a block cover its tile of 6x6 pixels. So the tile's length is at
    most twice that of the longest window in the block. The positions of blocks are unknown, so the
    longest window within `REACH` counts. Zeros next to large pixels get the error of these.

    Args:
        squares: The squared length of each window, ``batch x 1 x rows x cols``.
    """
    longest = functional.max_pool2d(squares, 2 * REACH + 1, 1, REACH)
    return longest * (2 * AMPLIFICATION) ** 2
