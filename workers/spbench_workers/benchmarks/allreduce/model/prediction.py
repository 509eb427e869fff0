"""Prediction of a collective's time by the alpha-beta model of the job's link."""

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
from spbench_workers.collectives.base import ITEM_BYTES, SCHEDULED

_COMPETING = [name for name in SCHEDULED if not name.startswith("muji")]
"""Algorithms of spbench that compete to be the fastest; the trees of muji are binomial."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of a case.

    Attributes:
        seconds: The predicted seconds.
        interval: Its bounds within the confidence intervals of the link.
        basis: A text for the algorithm or messages of the prediction.
    """

    seconds: float
    interval: tuple[float, float]
    basis: str


def predict(
    params: SweepParams, ranks: int, nbytes: int, link: JobLink, buffer_bytes: BufferBytes = (0, 0)
) -> Prediction:
    """Return the predicted time of a case.

    The algorithm of a library is unknown, so its prediction is that of the fastest algorithm of
    spbench. NCCL is predicted as a ring in one launch, which adds while it sends. Predictions
    include the copy to the result if the collective is out of place, and staging copies if the link
    has them. Other collectives are predicted from their successive messages: a ring for allgather
    and reduce_scatter, a binomial tree for broadcast, and pairs for alltoall.

    Args:
        params: The parameters of the case.
        ranks: Its number of ranks.
        nbytes: Bytes of the size.
        link: The measured link.
        buffer_bytes: Bytes of a rank's source, and of its result.
    """
    collective = params.collective
    itemsize = ITEM_BYTES[params.dtype]
    if collective != "allreduce":
        time_model = partial(_predict_messages, collective, ranks, nbytes)
        return _make_prediction(link, 0, time_model, buffer_bytes, "its messages")
    copied_bytes = 0 if params.in_place else nbytes
    if params.algorithm == "nccl":
        time_model = partial(_predict_nccl, ranks, nbytes, nbytes // itemsize)
        return _make_prediction(
            link, copied_bytes, time_model, buffer_bytes, "a ring in one launch of NCCL"
        )
    algorithm = params.algorithm
    group_and_chunks = (params.group, params.chunks)
    if algorithm not in SCHEDULED:
        algorithm = find_fastest_algorithm(ranks, nbytes, itemsize, link)
        group_and_chunks = (None, None)

    def predict_time(costs: LinkCosts) -> float:
        return predict_seconds(algorithm, ranks, nbytes, itemsize, costs, *group_and_chunks)

    return _make_prediction(link, copied_bytes, predict_time, buffer_bytes, algorithm)


def _make_prediction(
    link: JobLink,
    copied_bytes: int,
    predict_time: Callable[[LinkCosts], float],
    buffer_bytes: BufferBytes,
    basis: str,
) -> Prediction:
    seconds = link.predict_seconds(copied_bytes, predict_time, buffer_bytes)
    return Prediction(
        seconds, link.predict_interval(copied_bytes, predict_time, buffer_bytes), basis
    )


def find_fastest_algorithm(ranks: int, nbytes: int, itemsize: int, link: JobLink) -> str:
    """Return the algorithm of spbench with the least predicted time."""
    costs = link.fit.link if link.fit else LinkCosts(0.0, 0.0)
    return find_fastest(ranks, nbytes, itemsize, costs, _COMPETING)


def describe_crossovers(ranks: int, itemsize: int, link: JobLink) -> str:
    """Describe the fastest algorithms by size, up to the largest measured message."""
    if link.fit is None:
        return "one rank alone sends nothing"
    costs = link.fit.link
    crossovers = find_crossovers(ranks, costs, _COMPETING, link.max_bytes, itemsize)
    smallest = find_fastest_algorithm(ranks, itemsize, itemsize, link)
    later_text = "".join(
        f", from {crossover.nbytes} B {crossover.after}" for crossover in crossovers
    )
    return f"{smallest}{later_text}, up to the {link.max_bytes} B that were measured"


def _predict_nccl(ranks: int, nbytes: int, count: int, link: LinkCosts) -> float:
    if not nbytes or ranks == 1:
        return 0.0
    return link.alpha + nbytes * compute_path("ring", ranks, count).bytes_factor * link.beta


def _predict_messages(collective: str, ranks: int, nbytes: int, link: LinkCosts) -> float:
    """Return the seconds of successive messages; ``nbytes`` is for all ranks."""
    if not nbytes:
        return 0.0
    if collective == "broadcast":
        return (ranks - 1).bit_length() * (link.alpha + nbytes * link.beta)
    moved_bytes = nbytes * (ranks - 1) / ranks
    adding_seconds = moved_bytes * link.gamma if collective == "reduce_scatter" else 0.0
    return (ranks - 1) * link.alpha + moved_bytes * link.beta + adding_seconds
