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
    """Costs of stages by table, as arrays of ``(tables, L, L)`` for ``L`` ends.

    A row is the first state of a stage. Column ``x`` is the stage that ends before state ``x + 1``.
    Groups with the same kinds of devices and the same all-reduce cost share a table.

    Attributes:
        table_index: The index of each group's table.
        forward_s: Seconds of the forward pass; infinite if there is no such stage.
        passes_s: Seconds of both passes.
        all_reduce_s: Seconds of the all-reduce.
        max_in_flight: Micro-batches in flight that fit; negative if the parameters do not fit.
        max_in_flight_recomputing: The same with recomputation.
        always_fits: Whether any number of micro-batches fits in all stages.
    """

    table_index: Indices
    forward_s: Singles
    passes_s: Singles
    all_reduce_s: Singles
    max_in_flight: Singles
    max_in_flight_recomputing: Singles
    always_fits: bool


class _StageTable(NamedTuple):
    """The table of groups with the same kinds of devices; the arrays of `StageTables`."""

    forward_s: Floats
    passes_s: Floats
    all_reduce_s: Floats
    max_in_flight: Floats
    max_in_flight_recomputing: Floats


def compute_stage_tables(
    cost_model: CostModel, groups: Sequence[DeviceGroup], micro_batch_size: int, ends: Sequence[int]
) -> StageTables:
    """Return the costs of all stages.

    Args:
        cost_model: The costs.
        groups: The groups that stages can have.
        micro_batch_size: Samples of a micro-batch.
        ends: The states before which a stage may end, rising; ``L`` of them.
    """
    import numpy as np

    table_index_by_cost: dict[object, int] = {}
    tables: list[_StageTable] = []
    table_indices = []
    for group in groups:
        all_reduce = cost_model.message_costs.get_all_reduce_cost(group)
        key = cost_model.count_device_kinds(group), all_reduce
        if key not in table_index_by_cost:
            table_index_by_cost[key] = len(tables)
            sharing = cost_model.get_sharing(group, micro_batch_size)
            tables.append(_build_table(cost_model, sharing, all_reduce, ends))
        table_indices.append(table_index_by_cost[key])
    forward_s, passes_s, all_reduce_s, max_in_flight, max_in_flight_recomputing = (
        np.stack(arrays).astype(np.float32) for arrays in zip(*tables, strict=True)
    )
    possible_in_flight = max_in_flight[np.isfinite(forward_s)]
    return StageTables(
        table_index=np.array(table_indices),
        forward_s=forward_s,
        passes_s=passes_s,
        all_reduce_s=all_reduce_s,
        max_in_flight=max_in_flight,
        max_in_flight_recomputing=max_in_flight_recomputing,
        # `1f1b-deep` keeps at most one less than twice the stages in flight.
        always_fits=float(possible_in_flight.min()) >= 2 * len(ends),
    )


def _build_table(
    cost_model: CostModel, sharing: SampleSharing, all_reduce: MessageCost, ends: Sequence[int]
) -> _StageTable:
    import numpy as np

    work = sharing.work
    starts = [0, *ends[:-1]]
    starts_and_ends = np.ix_(starts, [end - 1 for end in ends])
    forward_s = _compute_span_sums(work.forward_s)[starts_and_ends] / sharing.speed
    parameter_bytes = _compute_span_sums(work.parameter_bytes)[starts_and_ends]
    max_in_flight = np.full_like(forward_s, np.inf)
    max_in_flight_recomputing = max_in_flight.copy()
    for share_work, capacity_bytes in sharing.memories:
        memory = _compute_micro_batch_memory(cost_model, share_work, capacity_bytes)
        free_bytes = memory.free_bytes
        max_in_flight = np.minimum(
            max_in_flight,
            _count_fitting(free_bytes[starts_and_ends], memory.kept_bytes[starts_and_ends]),
        )
        # One micro-batch at a time keeps all activations while its stage recomputes them.
        recomputing_free_bytes = (free_bytes - memory.kept_bytes)[starts_and_ends]
        num_fitting = _count_fitting(recomputing_free_bytes, memory.input_bytes[starts])
        max_in_flight_recomputing = np.minimum(max_in_flight_recomputing, num_fitting)
    forward_s[np.tril(np.ones(forward_s.shape, dtype=bool), -1)] = np.inf
    all_reduce_s = parameter_bytes * all_reduce.s_per_byte + all_reduce.latency_s
    return _StageTable(
        forward_s=forward_s,
        passes_s=forward_s + _compute_span_sums(work.backward_s)[starts_and_ends] / sharing.speed,
        all_reduce_s=np.where(parameter_bytes > 0, all_reduce_s, 0.0),
        max_in_flight=max_in_flight,
        max_in_flight_recomputing=max_in_flight_recomputing,
    )


def compute_missing_table(cost_model: CostModel, sharing: SampleSharing, in_flight: int) -> Floats:
    """Return the bytes that each stage's devices lack, by first and last state.

    The smaller value of those with and without recomputation; infinite if there is no such stage.
    """
    import numpy as np

    state_count = len(cost_model.states)
    missing_bytes_keeping = np.full((state_count, state_count), -np.inf)
    missing_bytes_recomputing = missing_bytes_keeping.copy()
    for share_work, capacity_bytes in sharing.memories:
        free_bytes, kept_bytes, input_bytes = _compute_micro_batch_memory(
            cost_model, share_work, capacity_bytes
        )
        missing_bytes_keeping = np.maximum(
            missing_bytes_keeping, in_flight * kept_bytes - free_bytes
        )
        missing_bytes_recomputing = np.maximum(
            missing_bytes_recomputing, kept_bytes + in_flight * input_bytes - free_bytes
        )
    missing_bytes: Floats = np.minimum(missing_bytes_keeping, missing_bytes_recomputing)
    missing_bytes[np.tril(np.ones(missing_bytes.shape, dtype=bool), -1)] = np.inf
    return missing_bytes


class _MicroBatchMemory(NamedTuple):
    """The memory for micro-batches on one kind of device.

    Attributes:
        free_bytes: Bytes free for all micro-batches; ``(states, states)``.
        kept_bytes: Bytes that a micro-batch keeps until its backward pass; ``(states, states)``.
        input_bytes: Bytes that it keeps if the stage recomputes; ``(states, 1)``.
    """

    free_bytes: Floats
    kept_bytes: Floats
    input_bytes: Floats


def _compute_micro_batch_memory(
    cost_model: CostModel, work: ModelWork, capacity_bytes: float
) -> _MicroBatchMemory:
    """Return the memory for micro-batches, by first and last state of the stage."""
    import numpy as np

    scaling = cost_model.training.optimizer_memory_scaling
    fixed_bytes = scaling * _compute_span_sums(work.parameter_bytes)
    return _MicroBatchMemory(
        free_bytes=capacity_bytes - fixed_bytes - _compute_largest_working(work.working_bytes),
        kept_bytes=_compute_span_sums(work.kept_bytes),
        input_bytes=np.array(work.crossing_bytes[:-1])[:, None],
    )


def _compute_span_sums(sums: tuple[float, ...]) -> Floats:
    """Return the differences of cumulative sums, by first and last state."""
    import numpy as np

    boundary_sums = np.array(sums)
    span_sums: Floats = boundary_sums[None, 1:] - boundary_sums[:-1, None]
    return span_sums


def _compute_largest_working(working_bytes: tuple[float, ...]) -> Floats:
    """Return the largest working memory of any state of each stage."""
    import numpy as np

    state_count = len(working_bytes)
    return np.maximum.accumulate(
        np.triu(np.tile(np.array(working_bytes), (state_count, 1))), axis=1
    )


def _count_fitting(free_bytes: Floats, bytes_each: Floats) -> Floats:
    """Return how often a size fits in the free bytes; -1 if these are negative."""
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        fitting = np.floor(free_bytes / bytes_each)
    return np.where(free_bytes < 0, -1.0, np.where(bytes_each > 0, fitting, np.inf))
