"""A stand-in for a GPU that multiplies fp32 as TF32 where torch's settings let it.

While it is entered, what convolutions and products of matrices read in fp32, forward and backward,
is rounded to the bits that TF32 has; their sums stay in fp32, as on a tensor core. Convolutions
obey ``torch.backends.cudnn.allow_tf32``, which is on unless somebody turns it off, and products of
matrices ``torch.backends.cuda.matmul.allow_tf32``.

It stands in for the rounding alone: the sums are made in the order of the device it runs on.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

TF32_BITS = 10
BF16_BITS = 7
"""Of the mantissa, as they are written down."""
_CONVOLUTIONS = {"convolution", "convolution_backward"}
_MATRICES = {"addmm", "mm"}


class Tf32Products(TorchDispatchMode):
    """Rounds what is multiplied.

    Args:
        bits: Of the mantissa, that are kept.

    Attributes:
        products: How many were of fp32, rounded or not.
    """

    def __init__(self, bits=TF32_BITS):
        super().__init__()
        self.products = 0
        self._lost = 23 - bits

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.partition("::")[2]
        convolves = name in _CONVOLUTIONS
        multiplies = name in _MATRICES
        if (convolves or multiplies) and args[0].dtype == torch.float32:
            self.products += 1
            allowed = torch.backends.cudnn if convolves else torch.backends.cuda.matmul
            if allowed.allow_tf32:
                args = tree_map(self._rounded, args)
        return function(*args, **(kwargs or {}))

    def _rounded(self, one):
        """To the nearest number that is left, the even one of two."""
        if not isinstance(one, torch.Tensor):
            return one
        bits = one.view(torch.int32)
        half = (1 << (self._lost - 1)) - 1
        last = (bits >> self._lost) & 1
        return ((bits + half + last) & ~((1 << self._lost) - 1)).view(torch.float32)
