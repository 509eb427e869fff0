"""Prediction of a collective's time by the alpha-beta model, on the measured link of the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from spbench_workers.benchmarks.allreduce.entry import SweepParams
from spbench_workers.benchmarks.allreduce.model.cost_model import (
    LinkCosts,
    find_crossovers,
    find_fastest,
    predict_seconds,
)
from spbench_workers.benchmarks.allreduce.model.critical_path import compute_path
from spbench_workers.benchmarks.allreduce.model.link_times import BufferBytes, JobLink
from spbench_workers.collectives.names import ITEM_BYTES, SCHEDULED

_COMPETING = [name for name in SCHEDULED if not name.startswith("muji")]
"""Our own algorithms that compete for the best; muji's trees are binomial ones."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of a case.

    Attributes:
        seconds: The predicted seconds.
        interval: The least and the most within the confidence intervals of the link.
        basis: The algorithm or messages of the prediction, in words.
    """

    seconds: float
    interval: tuple[float, float]
    basis: str


def predict(
    params: SweepParams, ranks: int, nbytes: int, link: JobLink, buffer_bytes: BufferBytes = (0, 0)
) -> Prediction:
    """Return the predicted time of a case.

    A library does not tell its algorithm: its prediction is that of our best algorithm, and NCCL's
    that of a ring in one launch, which adds while it sends. It includes the copy to the result, out
    of place, and those from a GPU and back, where the link has them. The other collectives are
    predicted by their messages in sequence: of a ring for allgather and reduce_scatter, of a
    binomial tree for broadcast, of pairs for alltoall.

    Args:
        params: The parameters of the case.
        ranks: Its number of ranks.
        nbytes: Bytes of the size.
        link: The measured link.
        buffer_bytes: Bytes of a rank's source, and of its result.
    """
    collective = params.collective
    item = ITEM_BYTES[params.dtype]
    if collective != "allreduce":
        time = partial(_seconds, collective, ranks, nbytes)
        return _prediction(link, 0, time, buffer_bytes, "its messages")
    copied = 0 if params.in_place else nbytes
    if params.algorithm == "nccl":
        time = partial(_nccl_seconds, ranks, nbytes, nbytes // item)
        return _prediction(link, copied, time, buffer_bytes, "a ring in one launch of NCCL")
    algorithm = params.algorithm
    options = (params.group, params.chunks)
    if algorithm not in SCHEDULED:
        algorithm = find_fastest_algorithm(ranks, nbytes, item, link)
        options = (None, None)

    def time_of(numbers: LinkCosts) -> float:
        return predict_seconds(algorithm, ranks, nbytes, item, numbers, *options)

    return _prediction(link, copied, time_of, buffer_bytes, algorithm)


def _prediction(
    link: JobLink, copied: int, time_of: Callable[[LinkCosts], float], ends: BufferBytes, by: str
) -> Prediction:
    seconds = link.predict_seconds(copied, time_of, ends)
    return Prediction(seconds, link.predict_interval(copied, time_of, ends), by)


def find_fastest_algorithm(ranks: int, nbytes: int, item: int, link: JobLink) -> str:
    """Return the one of our algorithms with the least predicted time."""
    numbers = link.fit.link if link.fit else LinkCosts(0.0, 0.0)
    return find_fastest(ranks, nbytes, item, numbers, _COMPETING)


def describe_crossovers(ranks: int, item: int, link: JobLink) -> str:
    """Return in words the fastest algorithms by size, up to the largest measured message."""
    if link.fit is None:
        return "one rank alone sends nothing"
    numbers = link.fit.link
    found = find_crossovers(ranks, numbers, _COMPETING, link.max_bytes, item)
    words = find_fastest_algorithm(ranks, item, item, link)
    found_words = "".join(f", from {one.nbytes} B {one.after}" for one in found)
    return f"{words}{found_words}, up to the {link.max_bytes} B that were measured"


def _nccl_seconds(ranks: int, nbytes: int, count: int, link: LinkCosts) -> float:
    if not nbytes or ranks == 1:
        return 0.0
    return link.alpha + nbytes * compute_path("ring", ranks, count).bytes_factor * link.beta


def _seconds(collective: str, ranks: int, nbytes: int, link: LinkCosts) -> float:
    """Return the seconds of messages in sequence; ``nbytes`` is the whole vector of all ranks."""
    if not nbytes:
        return 0.0
    if collective == "broadcast":
        return (ranks - 1).bit_length() * (link.alpha + nbytes * link.beta)
    moved = nbytes * (ranks - 1) / ranks
    added = moved * link.gamma if collective == "reduce_scatter" else 0.0
    return (ranks - 1) * link.alpha + moved * link.beta + added
