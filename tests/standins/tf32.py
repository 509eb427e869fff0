"""A stand-in for a GPU that multiplies fp32 in TF32 if torch's settings allow it.

While it is active, the fp32 inputs of convolutions and matrix products, forward and backward, are
rounded to the bits of TF32. Their sums stay in fp32, like on a tensor core. The setting of
convolutions is ``torch.backends.cudnn.allow_tf32``, which is on by default. The setting of matrix
products is ``torch.backends.cuda.matmul.allow_tf32``.

Only the rounding is that of a GPU: sums are in the order of the device that runs it.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

TF32_BITS = 10
BF16_BITS = 7
"""Stored bits of the mantissa."""
_CONVOLUTIONS = {"convolution", "convolution_backward"}
_MATRICES = {"addmm", "mm"}


class Tf32Products(TorchDispatchMode):
    """Rounds the factors of products.

    Args:
        bits: The remaining bits of the mantissa.

    Attributes:
        products: The number of products of fp32 numbers, rounded or not.
    """

    def __init__(self, bits=TF32_BITS):
        super().__init__()
        self.products = 0
        self._removed_bits = 23 - bits

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.partition("::")[2]
        convolves = name in _CONVOLUTIONS
        multiplies = name in _MATRICES
        if (convolves or multiplies) and args[0].dtype == torch.float32:
            self.products += 1
            allowed = torch.backends.cudnn if convolves else torch.backends.cuda.matmul
            if allowed.allow_tf32:
                args = tree_map(self._round, args)
        return function(*args, **(kwargs or {}))

    def _round(self, argument):
        """Round a tensor to the nearest remaining number, ties to even."""
        if not isinstance(argument, torch.Tensor):
            return argument
        bits = argument.view(torch.int32)
        half = (1 << (self._removed_bits - 1)) - 1
        last = (bits >> self._removed_bits) & 1
        return ((bits + half + last) & ~((1 << self._removed_bits) - 1)).view(torch.float32)
