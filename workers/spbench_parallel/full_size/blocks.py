"""Blocks of tensors: what is computed in float64 is copied one block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

BLOCK = 2**18
"""The most values of a block, 2 MiB in float64, where one row of all channels has no more."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of one image, with all channels."""

    image: int
    rows: slice

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """Return the block of a map, ``1 x channels x rows x cols``, in its own memory."""
        return values[self.image : self.image + 1, :, self.rows]


def blocks(shape: Sequence[int]) -> Iterator[Block]:
    """Yield the blocks of maps of a shape, ``batch x channels x rows x cols``."""
    images, channels, rows, cols = shape
    step = max(1, BLOCK // max(1, channels * cols))
    for image in range(images):
        for first in range(0, rows, step):
            yield Block(image, slice(first, min(first + step, rows)))


def pieces(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return a tensor of any shape, flat, in pieces of a block's size."""
    return torch.split(values.detach().reshape(-1), BLOCK)
