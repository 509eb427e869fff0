"""Pixelwise operators with parameters over tiles: their gradients are summed."""

from __future__ import annotations

import torch
from mpi4py import MPI
from torch import nn
from torch.nn import functional

from spbench_parallel.spatial.gradients import share_weights


class PixelwiseOperator(nn.Module):
    """A linear layer, a layer normalisation over the last axis, or a PReLU, per pixel.

    The gradients of its parameters are summed over the tiles. All ranks must call backward in the
    same order.

    Args:
        module: The operator of whole images, with its weights.
        comm: The ranks of the tiles.
    """

    def __init__(self, module: nn.Linear | nn.LayerNorm | nn.PReLU, comm: MPI.Intracomm) -> None:
        super().__init__()
        self._comm = comm
        self._module = (module,)  # a tuple, so that torch registers its parameters only once
        for name, parameter in module.named_parameters():
            self.register_parameter(name, parameter)

    def forward(self, tile: torch.Tensor) -> torch.Tensor:
        """Return the operator's values at this rank's pixels."""
        (module,) = self._module
        own_weight = self._parameters.get("weight")
        if own_weight is None:
            assert isinstance(module, nn.LayerNorm), "others have weights"
            return functional.layer_norm(tile, module.normalized_shape, eps=module.eps)
        weight, bias = share_weights(self._comm, own_weight, self._parameters.get("bias"))
        if isinstance(module, nn.LayerNorm):
            return functional.layer_norm(tile, module.normalized_shape, weight, bias, module.eps)
        if isinstance(module, nn.PReLU):
            return functional.prelu(tile, weight)
        return functional.linear(tile, weight, bias)
