"""Memory formats of maps: contiguous, or channels-last."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

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
