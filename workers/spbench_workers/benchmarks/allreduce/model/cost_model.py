"""Alpha-beta-gamma model of allreduce: times, fastest algorithm and crossovers.

A message of ``m`` bytes costs ``alpha + beta m``, and reducing ``m`` bytes costs ``gamma m``
(Thakur, Rabenseifner and Gropp, IJHPCA 2005). The module `critical_path` counts both on the
critical path of an algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from spbench_core.number_text import format_duration
from spbench_workers.benchmarks.allreduce.model.critical_path import compute_path
from spbench_workers.collectives.plan import explain_unsupported

NOTABLE_FACTOR = 1.5
"""A time deviates from this factor on; a model of three numbers is not more precise."""

_STEP = 2**0.125
"""The ratio of neighbouring sizes at which the best algorithms are compared."""


@dataclass(frozen=True, slots=True)
class LinkCosts:
    """The costs of messages and reductions on a link.

    Attributes:
        alpha: Seconds per message.
        beta: Seconds per byte sent.
        gamma: Seconds per byte reduced.
    """

    alpha: float
    beta: float
    gamma: float = 0.0


@dataclass(frozen=True, slots=True)
class Crossover:
    """A size from which on the algorithm ``after`` is faster than ``before``."""

    nbytes: int
    before: str
    after: str


def predict_seconds(
    algorithm: str,
    ranks: int,
    nbytes: int,
    itemsize: int,
    link: LinkCosts,
    group: int | None = None,
    chunks: int | None = None,
) -> float:
    """Return the predicted seconds of an allreduce; 0 if no message is sent.

    Args:
        algorithm: One of `spbench_workers.collectives.plan.ALGORITHMS`.
        ranks: Ranks that reduce together.
        nbytes: Bytes of the result.
        itemsize: Bytes of an element, which determines the number of chunks of ``chain``.
        link: The costs of messages and reductions.
        group: Ranks of a group of ``two_level``.
        chunks: Chunks of ``chain``.

    Raises:
        ValueError: The algorithm cannot run on this number of ranks.
    """
    path = compute_path(algorithm, ranks, nbytes // itemsize, group, chunks)
    if not nbytes:
        return 0.0
    return path.messages * link.alpha + nbytes * (
        path.bytes_factor * link.beta + path.reduced_factor * link.gamma
    )


def find_fastest(
    ranks: int,
    nbytes: int,
    itemsize: int,
    link: LinkCosts,
    algorithms: Iterable[str],
    group: int | None = None,
    chunks: int | None = None,
) -> str:
    """Return the algorithm with the least predicted time; the first one wins a tie.

    Algorithms that cannot run on this number of ranks are skipped.

    Raises:
        ValueError: None of the algorithms can run on this number of ranks.
    """
    candidates = [name for name in algorithms if not explain_unsupported(name, ranks)]
    if not candidates:
        raise ValueError(f"none of the algorithms runs on {ranks} ranks")

    def seconds(name: str) -> float:
        return predict_seconds(name, ranks, nbytes, itemsize, link, group, chunks)

    return min(candidates, key=seconds)


def find_crossovers(
    ranks: int,
    link: LinkCosts,
    algorithms: Sequence[str],
    up_to: int,
    itemsize: int = 4,
    group: int | None = None,
    chunks: int | None = None,
) -> list[Crossover]:
    """Return the exact sizes at which the fastest algorithm changes, in rising order.

    The search goes in steps of an eighth of an octave from one element up to ``up_to`` bytes. An
    algorithm that is the fastest only within one step may be missed.

    Raises:
        ValueError: None of the algorithms can run on this number of ranks.
    """

    def fastest(nbytes: int) -> str:
        return find_fastest(ranks, nbytes, itemsize, link, algorithms, group, chunks)

    crossovers = []
    low_bytes = itemsize
    while low_bytes < up_to:
        high_bytes = min(up_to, max(low_bytes + 1, int(low_bytes * _STEP)))
        algorithm_before = fastest(low_bytes)
        if fastest(high_bytes) != algorithm_before:
            high_bytes = _bisect_change(fastest, low_bytes, high_bytes)
            crossovers.append(Crossover(high_bytes, algorithm_before, fastest(high_bytes)))
        low_bytes = high_bytes
    return crossovers


def _bisect_change(fastest: Callable[[int], str], low_bytes: int, high_bytes: int) -> int:
    """Return the first size above the low one with the high one's fastest algorithm."""
    algorithm_before = fastest(low_bytes)
    while high_bytes - low_bytes > 1:
        middle_bytes = (low_bytes + high_bytes) // 2
        if fastest(middle_bytes) == algorithm_before:
            low_bytes = middle_bytes
        else:
            high_bytes = middle_bytes
    return high_bytes


def describe_deviation(
    measured_seconds: float, predicted_seconds: float, interval: tuple[float, float]
) -> str | None:
    """Describe how a time deviates from the model; return None if it agrees.

    No time deviates from a prediction of 0, which means that no message is sent.

    Args:
        measured_seconds: Measured seconds.
        predicted_seconds: Predicted seconds.
        interval: The bounds of the prediction, in seconds, from the uncertainty of the model. A
            time deviates if it is outside by more than a factor of `NOTABLE_FACTOR`.
    """
    low, high = interval
    if (
        predicted_seconds == 0.0
        or low / NOTABLE_FACTOR <= measured_seconds <= high * NOTABLE_FACTOR
    ):
        return None
    ratio = measured_seconds / predicted_seconds
    texts = list(map(format_duration, (measured_seconds, predicted_seconds, low, high)))
    return f"{texts[0]} is {ratio:.2g} times the predicted {texts[1]} ({texts[2]} to {texts[3]})"
