"""Timing of alternatives, so that the fastest can be chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from spbench_parallel.progress import NO_PROGRESS, Progress

if TYPE_CHECKING:
    from mpi4py import MPI

Key = TypeVar("Key")


def time_alternatives(
    alternatives: Mapping[Key, Callable[[], float]],
    *,
    rounds: int,
    warm_up: int = 1,
    comm: MPI.Intracomm | None = None,
    interleaved: bool = True,
    max_seconds: float = math.inf,
    progress: Progress = NO_PROGRESS,
    steps: float = 1,
) -> dict[Key, float]:
    """Return the median seconds of each alternative.

    Args:
        alternatives: Functions that run an alternative once and return its seconds.
        rounds: The number of timed runs of each.
        warm_up: The number of first runs of each that are dropped.
        comm: Ranks that all call this function. A run then takes as long as on its slowest rank,
            and all ranks return the same times. None: only this process measures.
        interleaved: Whether a round runs all alternatives, so that changes over time affect all of
            them. Otherwise all runs of one come before those of the next, like in a loop that uses
            only one of them.
        max_seconds: No timed round begins after this many seconds of timed rounds, except the
            first.
        progress: The progress over the rounds.
        steps: The steps of the progress for a round of all alternatives.
    """
    seconds_by_key: dict[Key, list[float]] = {key: [] for key in alternatives}
    groups = [list(alternatives)] if interleaved else [[key] for key in alternatives]
    for group in groups:
        spent_seconds = 0.0
        for completed in range(warm_up + rounds):
            if spent_seconds >= max_seconds and completed > warm_up:
                break
            for key in group:
                elapsed_seconds = _slowest(alternatives[key](), comm)
                if completed >= warm_up:
                    seconds_by_key[key].append(elapsed_seconds)
                    spent_seconds += elapsed_seconds
            progress.advance(steps * len(group) / len(alternatives))
    return {key: median(run_seconds) for key, run_seconds in seconds_by_key.items()}


def _slowest(seconds: float, comm: MPI.Intracomm | None) -> float:
    if comm is None:
        return seconds
    from mpi4py import MPI

    slowest: float = comm.allreduce(seconds, op=MPI.MAX)
    return slowest
