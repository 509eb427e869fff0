"""Memory formats of maps: channel by channel, or pixel by pixel with all channels together."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

MemoryFormat = Literal["contiguous", "channels_last"]
MEMORY_FORMATS: dict[MemoryFormat, torch.memory_format] = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
}
_MAP = 4
"""The dimensions of a batch of maps."""


def set_memory_format(stage: nn.Module, memory_format: MemoryFormat) -> None:
    """Lay out the weights of a stage's convolutions: their maps then lie as these do."""
    if memory_format != "contiguous":
        # Of this one argument the stubs know nothing.
        stage.to(memory_format=MEMORY_FORMATS[memory_format])  # type: ignore[call-overload]


def convert_maps(
    tensors: tuple[torch.Tensor, ...], memory_format: MemoryFormat
) -> tuple[torch.Tensor, ...]:
    """Return maps that lie so in memory; the same tensors where they do already."""
    if memory_format == "contiguous":
        return tensors
    wanted = MEMORY_FORMATS[memory_format]
    return tuple(
        tensor.contiguous(memory_format=wanted) if tensor.ndim == _MAP else tensor
        for tensor in tensors
    )
