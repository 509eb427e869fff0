"""Costs of all stages of a model on groups of devices, as arrays over first and last states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from spbench.planner.cluster.messages import MessageCost
from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.profile.work import ModelWork
from spbench.planner.search.cost_model import CostModel, SampleSharing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]
    Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StageTables:
    """Stages by group, by their first state, ``L`` rows, and the state after their last.

    Column ``x`` of ``L`` is the stage that ends before state ``x + 1``. Groups with the same kinds
    of devices and rates have one table.

    Attributes:
        kinds: The index of each group's table.
        forward: Seconds of the forward pass, infinite where there is no such stage.
        both: Seconds of both passes.
        reduce: Seconds of the all-reduce.
        plain: Micro-batches in flight that fit; below 0 where the parameters do not.
        recomputing: The same with recomputation.
        ample: Whether any number of them fits in all stages.
    """

    kinds: Indices
    forward: Singles
    both: Singles
    reduce: Singles
    plain: Singles
    recomputing: Singles
    ample: bool


class _StageTable(NamedTuple):
    """The table of one sort of group."""

    forward: Floats
    both: Floats
    reduce: Floats
    plain: Floats
    recomputing: Floats


def stage_tables(
    cost_model: CostModel, groups: Sequence[DeviceGroup], micro_batch: int, ends: Sequence[int]
) -> StageTables:
    """Return the costs of all stages.

    Args:
        cost_model: The costs.
        groups: The groups that stages can have.
        micro_batch: Samples.
        ends: The states before which a stage may end, rising; ``L`` of them.
    """
    import numpy as np

    found: dict[object, int] = {}
    tables: list[_StageTable] = []
    kinds = []
    for group in groups:
        rate = cost_model.links.all_reduce_cost(group)
        key = cost_model.device_kinds(group), rate
        if key not in found:
            found[key] = len(tables)
            sharing = cost_model.sharing(group, micro_batch)
            tables.append(_stage_table(cost_model, sharing, rate, ends))
        kinds.append(found[key])
    forward, both, reduce, plain, recomputing = (
        np.stack(each).astype(np.float32) for each in zip(*tables, strict=True)
    )
    fits = plain[np.isfinite(forward)]
    return StageTables(
        kinds=np.array(kinds),
        forward=forward,
        both=both,
        reduce=reduce,
        plain=plain,
        recomputing=recomputing,
        ample=float(fits.min()) >= 2 * len(ends),
    )


def _stage_table(
    cost_model: CostModel, sharing: SampleSharing, rate: MessageCost, ends: Sequence[int]
) -> _StageTable:
    import numpy as np

    work = sharing.work
    starts = [0, *ends[:-1]]
    picked = np.ix_(starts, [end - 1 for end in ends])
    forward = _spans(work.forward)[picked] / sharing.speed
    reduce = _spans(work.parameters)[picked]
    plain = np.full_like(forward, np.inf)
    recomputing = plain.copy()
    for held, memory in sharing.memories:
        left, kept, arriving = _room(cost_model, held, memory)
        plain = np.minimum(plain, _how_many(left[picked], kept[picked]))
        fits = _how_many((left - kept)[picked], arriving[starts])
        recomputing = np.minimum(recomputing, fits)
    forward[np.tril(np.ones(forward.shape, dtype=bool), -1)] = np.inf
    return _StageTable(
        forward=forward,
        both=forward + _spans(work.backward)[picked] / sharing.speed,
        reduce=np.where(reduce > 0, reduce * rate.per_byte + rate.latency, 0.0),
        plain=plain,
        recomputing=recomputing,
    )


def compute_missing_table(cost_model: CostModel, sharing: SampleSharing, kept: int) -> Floats:
    """Return how many bytes each stage's devices have too few, with so much in flight.

    With recomputation where that is less; infinite where there is no such stage.
    """
    import numpy as np

    states = len(cost_model.states)
    plain = np.full((states, states), -np.inf)
    again = plain.copy()
    for held, memory in sharing.memories:
        left, whole, arriving = _room(cost_model, held, memory)
        plain = np.maximum(plain, kept * whole - left)
        again = np.maximum(again, whole + kept * arriving - left)
    worst: Floats = np.minimum(plain, again)
    worst[np.tril(np.ones(worst.shape, dtype=bool), -1)] = np.inf
    return worst


def _room(cost_model: CostModel, work: ModelWork, memory: float) -> tuple[Floats, Floats, Floats]:
    """Return the bytes left for activations, what a micro-batch keeps, and what arrives."""
    import numpy as np

    scaling = cost_model.training.optimizer_memory_scaling
    left = memory - scaling * _spans(work.parameters) - _running_most(work.working)
    return left, _spans(work.kept), np.array(work.crossing[:-1])[:, None]


def _spans(sums: tuple[float, ...]) -> Floats:
    import numpy as np

    array = np.array(sums)
    spans: Floats = array[None, 1:] - array[:-1, None]
    return spans


def _running_most(working: tuple[float, ...]) -> Floats:
    """Return the most that any state of each stage needs."""
    import numpy as np

    count = len(working)
    return np.maximum.accumulate(np.triu(np.tile(np.array(working), (count, 1))), axis=1)


def _how_many(left: Floats, each: Floats) -> Floats:
    """Return how often so many bytes fit in what is left."""
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        count = np.floor(left / each)
    return np.where(left < 0, -1.0, np.where(each > 0, count, np.inf))
