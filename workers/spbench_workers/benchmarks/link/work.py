"""Estimates of the work of ping-pongs, rings, bisections and barriers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spbench_core.catalog.work import TimedLoop, Work, count_iterations

if TYPE_CHECKING:
    from spbench_workers.benchmarks.link.entry import (
        BisectionParams,
        EffectiveParams,
        LoopParams,
        PingpongParams,
        RingParams,
    )


def pingpong_work(params: PingpongParams, np: int) -> Work:
    """Return the work of ``link.pingpong``: pairs one after another, or in rounds."""
    pairs = np - 1 if params.pairs == "neighbours" else np * (np - 1) // 2
    at_once = params.at_once or (1 if pairs <= 28 else np // 2)
    rounds = math.ceil(pairs / max(1, at_once))
    repeats = count_iterations(params) + 2.0
    sizes = params.sizes
    return Work(
        bytes=2.0 * pairs * repeats * sum(sizes),
        messages=2.0 * rounds * repeats * len(sizes),
        memory=2.0 * np * max(sizes),
    )


def _all_ranks_work(patterns: int, sizes: list[int], params: TimedLoop, np: int) -> Work:
    repeats = count_iterations(params) + 2.0
    return Work(
        bytes=2.0 * np * patterns * repeats * sum(sizes),
        messages=2.0 * patterns * repeats * len(sizes),
        memory=2.0 * np * max(sizes),
    )


def rings_work(params: RingParams | EffectiveParams, np: int) -> Work:
    """Return the work of ``link.ring`` and ``link.effective``."""
    return _all_ranks_work(1 + params.rings, params.sizes, params, np)


def bisection_work(params: BisectionParams, np: int) -> Work:
    """Return the work of ``link.bisection``."""
    return _all_ranks_work(1 + params.cuts, [params.size], params, np)


def barrier_work(params: LoopParams, np: int) -> Work:
    """Return the work of ``link.barrier``; its check leaves ranks waiting."""
    return Work(
        messages=2.0 * count_iterations(params) * math.ceil(math.log2(max(2, np))), seconds=0.1
    )
