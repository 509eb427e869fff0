"""Images of random values; every rank computes any box without communication."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from spbench_core.layout.tiles import Box

# Values per step, by device type; each needs an integer of eight bytes. On a CPU they fit into a
# cache: measured, 16 times as many take twice the time.
_CHUNK_VALUES_BY_DEVICE = {"cpu": 1 << 16}
_CHUNK_VALUES = 1 << 22  # values per step on any other device
_CPU = torch.device("cpu")
_MULTIPLIERS = (-0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""The multipliers of splitmix64, as signed numbers."""


@dataclass(frozen=True, slots=True)
class RandomImage:
    """An image of ``batch x channels x height x width`` random values.

    A value depends only on its position, the seed and the round. It is one of 2048 numbers between
    1/16 and 16, or a negative of one, which fp64, fp32, fp16 and bf16 all represent exactly. No
    value is zero, and every value differs from that of the previous round.
    """

    batch: int
    channels: int
    height: int
    width: int
    seed: int

    def make_box(
        self,
        box: Box,
        round_: int,
        dtype: torch.dtype,
        device: torch.device = _CPU,
        *,
        chunk_values: int | None = None,
    ) -> torch.Tensor:
        """Return the values of a box, ``batch x channels x box.height x box.width``.

        All devices return the same values. ``chunk_values`` is the number of values per step; None
        takes one that is fast on the device.
        """
        plane_starts = (
            torch.arange(self.batch * self.channels, device=device).unsqueeze(1) * self.height
        )
        row_starts = (plane_starts + torch.arange(*box.rows, device=device)).flatten() * self.width
        cols = torch.arange(*box.cols, device=device)
        values = torch.empty((row_starts.numel(), box.width), dtype=dtype, device=device)
        if chunk_values is None:
            chunk_values = _CHUNK_VALUES_BY_DEVICE.get(device.type, _CHUNK_VALUES)
        rows_per_chunk = max(1, chunk_values // max(1, box.width))
        for first_row in range(0, row_starts.numel(), rows_per_chunk):
            positions = row_starts[first_row : first_row + rows_per_chunk].unsqueeze(1) + cols
            bits = _hash(_hash(positions, self.seed), round_)
            values[first_row : first_row + rows_per_chunk] = self.values(bits, round_)
        return values.view(self.batch, self.channels, box.height, box.width)

    def values(self, bits: torch.Tensor, round_: int) -> torch.Tensor:
        """Return fp32 numbers from ten bits of a hash and the round's parity.

        The parity is the lowest bit, so that rounds differ.
        """
        sign = bits & (1 << 9)
        exponent = 123 + ((bits >> 6) & 7)
        mantissa = ((bits & 63) << 1) | (round_ & 1)
        float_bits = (sign << 22) | (exponent << 23) | (mantissa << 16)
        return float_bits.to(torch.int32).view(torch.float32)


@dataclass(frozen=True, slots=True)
class IntegerImage(RandomImage):
    """An image of integers from ``-largest`` to ``largest``.

    About ``share`` of each 2 ** 16 values are drawn; the others are zero.
    """

    largest: int
    share: int = 1 << 16

    def values(self, bits: torch.Tensor, round_: int) -> torch.Tensor:
        """Return integers drawn by the upper bits of a hash.

        The lower bits select the values that are not zero.
        """
        numbers = _shift(bits, 16) % (2 * self.largest + 1) - self.largest
        return torch.where((bits & 0xFFFF) < self.share, numbers, 0).float()


def _hash(integers: torch.Tensor, key: int) -> torch.Tensor:
    """Mix like splitmix64, which relies on torch's wrapping 64-bit integers."""
    mixed = (integers + 1 + key) * _MULTIPLIERS[0]
    for shift, multiplier in ((30, _MULTIPLIERS[1]), (27, _MULTIPLIERS[2])):
        mixed = (mixed ^ _shift(mixed, shift)) * multiplier
    return mixed ^ _shift(mixed, 31)


def _shift(integers: torch.Tensor, count: int) -> torch.Tensor:
    """Shift right by ``count`` bits, filling with zeros."""
    return (integers >> count) & ((1 << (64 - count)) - 1)
