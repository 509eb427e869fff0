"""Allreduce of the gradients of parameters that all tiles share.

MPI adds on the host. GPU values are staged through pinned memory, also if NCCL carries the messages
between stages. Over tiles there are many sums, in autograd's order, and most are small. NCCL would
need another stream and one group per group of tiles, and would only save the time to copy a few
KiB. Pixelwise operators need nothing else over tiles, and are here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mpi4py import MPI
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

from spbench_parallel.device.host_memory import get_staging_buffers
from spbench_parallel.device.streams import is_gpu
from spbench_parallel.spatial.comm_stats import COMM_STATS

_MPI_TYPES = {torch.float32: MPI.FLOAT, torch.float64: MPI.DOUBLE}
"""The formats that MPI can add; it has no 16-bit floating-point numbers."""


def share_parameters(
    comm: MPI.Intracomm, parameters: Sequence[torch.Tensor], wire_dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, ...]:
    """Return the parameters with gradients that are summed over the ranks.

    Args:
        comm: The ranks, each with a tile. All must use the returned tensors and call backward.
        parameters: The parameters, equal on all ranks.
        wire_dtype: The number format in which gradients are sent; None: their own.
    """
    if not torch.is_grad_enabled():
        return tuple(parameters)
    shared: tuple[torch.Tensor, ...] = _ShareParameters.apply(comm, wire_dtype, *parameters)
    return shared


def share_weights(
    comm: MPI.Intracomm, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return weight and bias of an operator with gradients summed over the tiles."""
    parameters = (weight,) if bias is None else (weight, bias)
    shared = share_parameters(comm, parameters)
    return shared[0], None if bias is None else shared[1]


def differentiable_sum(comm: MPI.Intracomm, values: torch.Tensor) -> torch.Tensor:
    """Return the sum of values over the ranks.

    Its gradient is summed too, because every rank uses the sum. All ranks must call it, and
    backward, in the same order.
    """
    total: torch.Tensor = _SumOverRanks.apply(comm, values)
    return total


def allreduce_sum(
    comm: MPI.Intracomm, tensor: torch.Tensor, wire_dtype: torch.dtype | None = None
) -> None:
    """Sum a tensor over the ranks in place, in one message; all get equal values."""
    if comm.size == 1 and wire_dtype in (None, tensor.dtype):
        return
    with COMM_STATS.time_exchange():
        if is_gpu(tensor.device):
            memory = get_staging_buffers(tensor.device)
            memory.copy_to_gpu(_sum_on_host(comm, memory.download(tensor, wire_dtype)), tensor)
            return
        values_on_host = (
            tensor.detach().to(device="cpu", dtype=wire_dtype or tensor.dtype).contiguous()
        )
        tensor.copy_(_sum_on_host(comm, values_on_host))


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


def _sum_on_host(comm: MPI.Intracomm, values: torch.Tensor) -> torch.Tensor:
    if values.dtype in _MPI_TYPES:
        comm.Allreduce(MPI.IN_PLACE, [_mpi_buffer(values), _MPI_TYPES[values.dtype]])
        return values
    # 16-bit numbers are sent unchanged and added in fp32, on all ranks in the same order.
    values_by_rank = values.new_empty((comm.size, *values.shape))
    comm.Allgather([_mpi_buffer(values), MPI.BYTE], [_mpi_buffer(values_by_rank), MPI.BYTE])
    return values_by_rank.float().sum(0)


def _mpi_buffer(values: torch.Tensor) -> MPI.buffer:
    return MPI.buffer.fromaddress(values.data_ptr(), values.numel() * values.element_size())


class _SumOverRanks(Function):
    @staticmethod
    def forward(ctx: Any, comm: MPI.Intracomm, values: torch.Tensor) -> torch.Tensor:
        ctx.comm = comm
        total = values.clone()
        allreduce_sum(comm, total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        total = gradient.contiguous().clone()
        allreduce_sum(ctx.comm, total)
        return None, total


class _ShareParameters(Function):
    @staticmethod
    def forward(
        ctx: Any, comm: MPI.Intracomm, wire_dtype: torch.dtype | None, *parameters: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.comm = comm
        ctx.wire_dtype = wire_dtype
        return tuple(parameter.view_as(parameter) for parameter in parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        flat_gradients = torch.cat([gradient.reshape(-1) for gradient in gradients])
        allreduce_sum(ctx.comm, flat_gradients, ctx.wire_dtype)
        flat_sums = flat_gradients.split([gradient.numel() for gradient in gradients])
        sums = [
            flat_sum.view(gradient.shape)
            for flat_sum, gradient in zip(flat_sums, gradients, strict=True)
        ]
        return None, None, *sums
