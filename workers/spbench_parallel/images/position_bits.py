"""Random bits of maps by position: a rank draws those of its own part, and no others.

Each row and each column of a map draws a key; what two keys have in common is mixed as a hash of 32
bits does it ("lowbias32" of C. Wellons' hash prospector). That takes six passes over a tile, on the
device that it is for, where a random generator would have to make the whole map.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from spbench_core.layout.tiles import Box
from spbench_parallel.device.host_memory import copy_to_device
from spbench_parallel.images.seeds import make_generator

Words = tuple[str | int, ...]
_FACTORS = (0x7FEB352D, 0x846CA68B - (1 << 32))
"""Both odd; the second as a signed number."""


def position_bits(
    maps: Sequence[Words], shape: tuple[int, int, int], box: Box, device: torch.device
) -> torch.Tensor:
    """Return 32 random bits for each value of a box of maps, in int32.

    Args:
        maps: The words that each map's bits follow from.
        shape: Channels, height and width of a map.
        box: The box, ``maps x channels x rows x cols``.
        device: The device that makes them.
    """
    if not maps:
        return torch.empty((0, shape[0], *box.shape), dtype=torch.int32, device=device)
    keys = [_keys(words, shape, box) for words in maps]
    rows, cols = (copy_to_device(torch.stack(one), device) for one in zip(*keys, strict=True))
    return _mix(rows.unsqueeze(3) ^ cols.unsqueeze(1).unsqueeze(1))


def _keys(words: Words, shape: tuple[int, int, int], box: Box) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the keys of a box's rows, ``channels x rows``, and of its columns, in int32."""
    source = make_generator(*words)
    channels, height, width = shape
    rows, cols = (
        torch.randint(-(1 << 31), 1 << 31, sides, dtype=torch.int32, generator=source)
        for sides in ((channels, height), (width,))
    )
    return rows[:, slice(*box.rows)], cols[slice(*box.cols)]


def _mix(bits: torch.Tensor) -> torch.Tensor:
    """Mix in place; torch's whole numbers wrap, as it needs."""
    for factor in _FACTORS:
        # The mask: zeros are to come in from the left, where torch repeats the sign.
        bits.bitwise_xor_((bits >> 16).bitwise_and_(0xFFFF)).mul_(factor)
    return bits
