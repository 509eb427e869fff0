"""Random numbers by seed and position: ranks agree without messages.

Each row and column of a map draws a key. The exclusive or of two keys is mixed by a 32-bit hash
("lowbias32" of C. Wellons' hash prospector). A rank draws only the bits that it needs. That takes
six passes over a tile on its device; a random generator would have to produce the whole map.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

from spbench_core.layout.tiles import Box
from spbench_parallel.device.host_memory import copy_to_device


def hash_parts(*parts: str | int) -> int:
    """Return a number below 2**63 that is determined by its parts."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def make_generator(*parts: str | int) -> torch.Generator:
    """Return a CPU random generator seeded by parts."""
    return torch.Generator().manual_seed(hash_parts(*parts))


SeedParts = tuple[str | int, ...]
# The factors of lowbias32. They are odd, so that different bits stay different. The second is
# written as a signed number, because int32 cannot represent it otherwise.
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B - (1 << 32))


def draw_random_bits(
    maps: Sequence[SeedParts], shape: tuple[int, int, int], box: Box, device: torch.device
) -> torch.Tensor:
    """Return 32 random bits for each value of a box of maps, in int32.

    The result is ``maps x channels x rows x cols``.

    Args:
        maps: The parts that determine each map's bits.
        shape: Channels, height and width of a map.
        box: The box of each map.
        device: The device that computes them.
    """
    if not maps:
        return torch.empty((0, shape[0], *box.shape), dtype=torch.int32, device=device)
    keys_by_map = [_draw_keys(parts, shape, box) for parts in maps]
    row_keys, col_keys = (
        copy_to_device(torch.stack(axis_keys), device)
        for axis_keys in zip(*keys_by_map, strict=True)
    )
    return _mix(row_keys.unsqueeze(3) ^ col_keys.unsqueeze(1).unsqueeze(1))


def _draw_keys(
    parts: SeedParts, shape: tuple[int, int, int], box: Box
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the keys of a box's rows, ``channels x rows``, and columns, in int32."""
    generator = make_generator(*parts)
    channels, height, width = shape
    row_keys, col_keys = (
        torch.randint(-(1 << 31), 1 << 31, sides, dtype=torch.int32, generator=generator)
        for sides in ((channels, height), (width,))
    )
    return row_keys[:, slice(*box.rows)], col_keys[slice(*box.cols)]


def _mix(bits: torch.Tensor) -> torch.Tensor:
    """Mix in place; relies on torch's wrapping integers."""
    for multiplier in _MULTIPLIERS:
        # The mask makes the shift logical: torch repeats the sign.
        bits.bitwise_xor_((bits >> 16).bitwise_and_(0xFFFF)).mul_(multiplier)
    return bits
