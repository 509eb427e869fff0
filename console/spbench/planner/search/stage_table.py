"""Costs of all stages of a model, as arrays over first and last states."""

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
    """Costs of stages; arrays except ``kinds`` are ``(tables, L, L)`` for `L` ends.

    A row is the first state of a stage. Column ``x`` is the stage that ends before state ``x + 1``.
    Groups with the same kinds of devices and the same all-reduce cost share a table.

    Attributes:
        kinds: The index of each group's table.
        forward: Seconds of the forward pass; infinite if there is no such stage.
        passes: Seconds of both passes.
        reduce: Seconds of the all-reduce.
        plain: Micro-batches in flight that fit; negative if the parameters do not fit.
        recomputing: Micro-batches in flight that fit with recomputation.
        ample: Whether any number of micro-batches fits in all stages.
    """

    kinds: Indices
    forward: Singles
    passes: Singles
    reduce: Singles
    plain: Singles
    recomputing: Singles
    ample: bool


class _StageTable(NamedTuple):
    """The table of groups with the same kinds of devices; the arrays of `StageTables`."""

    forward: Floats
    passes: Floats
    reduce: Floats
    plain: Floats
    recomputing: Floats


def compute_stage_tables(
    cost_model: CostModel, groups: Sequence[DeviceGroup], micro_batch: int, ends: Sequence[int]
) -> StageTables:
    """Return the costs of all stages.

    Args:
        cost_model: The costs.
        groups: The groups that stages can have.
        micro_batch: Samples of a micro-batch.
        ends: The states before which a stage may end, rising; `L` of them.
    """
    import numpy as np

    indices: dict[object, int] = {}
    tables: list[_StageTable] = []
    kinds = []
    for group in groups:
        all_reduce = cost_model.links.all_reduce_cost(group)
        key = cost_model.device_kinds(group), all_reduce
        if key not in indices:
            indices[key] = len(tables)
            sharing = cost_model.sharing(group, micro_batch)
            tables.append(_build_table(cost_model, sharing, all_reduce, ends))
        kinds.append(indices[key])
    forward, passes, reduce, plain, recomputing = (
        np.stack(arrays).astype(np.float32) for arrays in zip(*tables, strict=True)
    )
    in_flight = plain[np.isfinite(forward)]
    return StageTables(
        kinds=np.array(kinds),
        forward=forward,
        passes=passes,
        reduce=reduce,
        plain=plain,
        recomputing=recomputing,
        # `1f1b-deep` keeps at most one less than twice the stages in flight.
        ample=float(in_flight.min()) >= 2 * len(ends),
    )


def _build_table(
    cost_model: CostModel, sharing: SampleSharing, all_reduce: MessageCost, ends: Sequence[int]
) -> _StageTable:
    import numpy as np

    work = sharing.work
    starts = [0, *ends[:-1]]
    picked = np.ix_(starts, [end - 1 for end in ends])
    forward = _span_sums(work.forward)[picked] / sharing.speed
    parameters = _span_sums(work.parameters)[picked]
    plain = np.full_like(forward, np.inf)
    recomputing = plain.copy()
    for share, memory in sharing.memories:
        free, kept_bytes, arriving = _free_bytes(cost_model, share, memory)
        plain = np.minimum(plain, _count_fitting(free[picked], kept_bytes[picked]))
        fitting = _count_fitting((free - kept_bytes)[picked], arriving[starts])
        recomputing = np.minimum(recomputing, fitting)
    forward[np.tril(np.ones(forward.shape, dtype=bool), -1)] = np.inf
    all_reduce_s = parameters * all_reduce.per_byte + all_reduce.latency
    return _StageTable(
        forward=forward,
        passes=forward + _span_sums(work.backward)[picked] / sharing.speed,
        reduce=np.where(parameters > 0, all_reduce_s, 0.0),
        plain=plain,
        recomputing=recomputing,
    )


def compute_missing_table(cost_model: CostModel, sharing: SampleSharing, in_flight: int) -> Floats:
    """Return the bytes that each stage's devices lack, by first and last state.

    The smaller value of those with and without recomputation; infinite if there is no such stage.
    """
    import numpy as np

    states = len(cost_model.states)
    plain = np.full((states, states), -np.inf)
    recomputing = plain.copy()
    for share, memory in sharing.memories:
        free, kept_bytes, arriving = _free_bytes(cost_model, share, memory)
        plain = np.maximum(plain, in_flight * kept_bytes - free)
        recomputing = np.maximum(recomputing, kept_bytes + in_flight * arriving - free)
    missing: Floats = np.minimum(plain, recomputing)
    missing[np.tril(np.ones(missing.shape, dtype=bool), -1)] = np.inf
    return missing


def _free_bytes(
    cost_model: CostModel, work: ModelWork, memory: float
) -> tuple[Floats, Floats, Floats]:
    """Return the bytes free for micro-batches, and the bytes of a micro-batch.

    These are its kept bytes and, for a stage that recomputes, its inputs. Shapes: free and kept
    bytes ``(states, states)``, inputs ``(states, 1)``.
    """
    import numpy as np

    scaling = cost_model.training.optimizer_memory_scaling
    free = memory - scaling * _span_sums(work.parameters) - _largest_working(work.working)
    return free, _span_sums(work.kept_bytes), np.array(work.crossing[:-1])[:, None]


def _span_sums(sums: tuple[float, ...]) -> Floats:
    """Return the differences of cumulative sums, by first and last state."""
    import numpy as np

    array = np.array(sums)
    spans: Floats = array[None, 1:] - array[:-1, None]
    return spans


def _largest_working(working: tuple[float, ...]) -> Floats:
    """Return the largest working memory of any state of each stage."""
    import numpy as np

    count = len(working)
    return np.maximum.accumulate(np.triu(np.tile(np.array(working), (count, 1))), axis=1)


def _count_fitting(free: Floats, size: Floats) -> Floats:
    """Return how often a size fits in the free bytes; -1 if these are negative."""
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        count = np.floor(free / size)
    return np.where(free < 0, -1.0, np.where(size > 0, count, np.inf))
