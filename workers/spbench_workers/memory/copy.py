"""The benchmark ``memory.copy``: how fast each rank copies within its own memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from spbench_workers.alone import give_rate_and_limit
from spbench_workers.context import Context
from spbench_workers.device.choice import device_of
from spbench_workers.device.streams import synchronize
from spbench_workers.timing import measure

_BLOCK = 1 << 24
"""Bytes that are made or compared at once."""


def run(context: Context) -> None:
    """Run the case."""
    size = context.params["size"]
    place = device_of(context)
    source = torch.zeros(size, dtype=torch.uint8, device=place)
    target = torch.zeros(size, dtype=torch.uint8, device=place)

    def copy() -> None:
        target.copy_(source)
        synchronize(place)

    def copy_and_corrupt() -> None:
        copy()
        target[size // 2].bitwise_not_()

    body = copy_and_corrupt if context.planted("corrupt-copy") else copy
    before = _check(context, body, source, target, "before")
    times = measure(context, body)
    after = _check(context, body, source, target, "after")
    error, detail = before if before[0] else after
    context.check("copy", error, 0.0, detail)
    give_rate_and_limit(context, copy, times, rate="bandwidth_gb_s", amount=size / 1e9)


def _check(
    context: Context,
    body: Callable[[], object],
    source: torch.Tensor,
    target: torch.Tensor,
    when: str,
) -> tuple[float, str]:
    """Copy fresh bytes over wrong ones; return the largest error and where the first one is."""
    size = source.numel()
    firsts = range(0, size, _BLOCK)
    context.progress("check", 0, 1)
    for first in firsts:
        fresh = _random_block(context, when, first, min(_BLOCK, size - first))
        source[first : first + _BLOCK].copy_(fresh)
        target[first : first + _BLOCK].copy_(fresh.bitwise_not_())
    body()
    for first in firsts:
        expected = _random_block(context, when, first, min(_BLOCK, size - first))
        got = target[first : first + _BLOCK].cpu()
        if not torch.equal(got, expected):
            return _difference(got, expected, first)
    return 0.0, ""


def _random_block(context: Context, when: str, first: int, size: int) -> torch.Tensor:
    seed = context.seed_for("copy", context.world.rank, when, first)
    words = torch.empty(-(-size // 8), dtype=torch.int64)
    words.random_(-(1 << 63), None, generator=torch.Generator().manual_seed(seed))
    return words.view(torch.uint8)[:size]


def _difference(got: torch.Tensor, expected: torch.Tensor, first: int) -> tuple[float, str]:
    place = int((got != expected).nonzero()[0])
    error = float((got.short() - expected.short()).abs().max())
    return error, f"byte {first + place} is {int(got[place])}, not {int(expected[place])}"
