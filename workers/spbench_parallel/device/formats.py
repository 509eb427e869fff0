"""Number formats and memory formats of data, and the precision of fp32 products."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import nn

from spbench_parallel.errors import CannotRunError

MemoryFormat = Literal["contiguous", "channels_last"]
MEMORY_FORMATS: dict[MemoryFormat, torch.memory_format] = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
}
_MAP_DIMENSIONS = 4  # batch, channels, rows, cols


def set_memory_format(stage: nn.Module, memory_format: MemoryFormat) -> None:
    """Set the memory format of the weights of a stage's convolutions.

    Their outputs get the same format.
    """
    if memory_format != "contiguous":
        # The type stubs lack this overload.
        stage.to(memory_format=MEMORY_FORMATS[memory_format])  # type: ignore[call-overload]


def convert_maps(
    tensors: tuple[torch.Tensor, ...], memory_format: MemoryFormat
) -> tuple[torch.Tensor, ...]:
    """Return maps in a memory format; tensors that already have it are not copied."""
    if memory_format == "contiguous":
        return tensors
    layout = MEMORY_FORMATS[memory_format]
    return tuple(
        tensor.contiguous(memory_format=layout) if tensor.ndim == _MAP_DIMENSIONS else tensor
        for tensor in tensors
    )


TORCH_DTYPES = {
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
"""Torch's dtypes by spbench's names."""
TF32_CAPABILITY = (8, 0)
"""The lowest compute capability with TF32 tensor cores (Ampere)."""
_OVERRIDE_VARIABLE = "NVIDIA_TF32_OVERRIDE"


def torch_dtype(name: str) -> torch.dtype:
    """Return torch's dtype of a format; tf32 is stored as fp32."""
    return TORCH_DTYPES["fp32" if name == "tf32" else name]


def set_fp32_precision(device: torch.device, *, tf32: bool = False) -> None:
    """Set whether convolutions and matrix products compute fp32 as TF32 on a GPU.

    Torch allows TF32 in convolutions by default.

    Raises:
        CannotRunError: The device has no TF32, or the environment forces the other format.
    """
    if device.type == "cuda":
        _check_tf32(device, tf32)
    elif tf32:
        raise CannotRunError("tf32 needs a GPU, and the device is cpu; take fp32")
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def _check_tf32(device: torch.device, tf32: bool) -> None:
    capability = torch.cuda.get_device_capability(device)
    if tf32 and capability < TF32_CAPABILITY:
        raise CannotRunError(
            f"tf32 needs a GPU of capability 8.0 or newer, and {device} has "
            f"{capability[0]}.{capability[1]}; take fp32"
        )
    forced = os.environ.get(_OVERRIDE_VARIABLE)
    if forced in ("0", "1") and (forced == "1") != tf32:
        requested, actual = ("tf32", "fp32") if tf32 else ("fp32", "tf32")
        raise CannotRunError(
            f"{_OVERRIDE_VARIABLE}={forced} makes every product {actual}, and {requested} is "
            "asked for; unset it"
        )


def autotune_convolutions(*, tf32: bool = False) -> AbstractContextManager[object]:
    """Return a context in which cuDNN measures and takes the fastest algorithm.

    ``torch.backends.cudnn.flags`` disables cuDNN by default.
    """
    return torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=tf32)
