"""Timetables of a step: the times of passes, messages and all-reduces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from math import inf
from typing import Protocol

from spbench_core.schedule.orders import (
    INTERLEAVED,
    ZERO_BUBBLE,
    Schedule,
    list_interleaved_tasks,
    list_zero_bubble_kinds,
    order_passes,
)
from spbench_core.schedule.simulation import RowTask, StepSimulation, TaskRow

DATA_SHARE = 0.5
"""The default share of a backward pass that computes gradients of data, if it was not measured.

zb-h1 computes them separately from the gradients of weights. A convolution has the same number of
multiply-adds for both."""

_MAX_CACHED_TASKS = 4096
"""The limit of tasks of one kind in the orders of a step that are cached.

A search simulates many steps of few shapes. A task takes about 100 bytes."""
_ROUNDING_TOLERANCE = 1.0 + 1e-9
"""The factor by which rounding can make a device's passes longer."""


class StageTimes(Protocol):
    """The times of a stage that a timetable needs, in seconds."""

    @property
    def forward_s(self) -> float: ...
    @property
    def backward_s(self) -> float: ...
    @property
    def send_s(self) -> float: ...
    @property
    def all_reduce_s(self) -> float: ...
    @property
    def overlapped_s(self) -> float: ...
    @property
    def data_share(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Timetable:
    """Seconds after the start of a step, by stage and micro-batch.

    Attributes:
        forward_starts: The start of each forward pass.
        backward_ends: The end of each backward pass, which starts ``backward_s`` earlier. With
            zb-h1, the end of the gradients of data, which take the stage's ``data_share`` of it.
        send_starts: The start of each output's transfer to the next stage; none for the last.
        gradient_send_starts: The start of each gradient's transfer to the previous stage; none for
            the first.
        all_reduce_starts: The start of the all-reduce of each stage, by stage only.
        end_s: The end of the last all-reduce.
        weights_ends: With zb-h1, the end of each micro-batch's gradients of weights.
    """

    forward_starts: list[list[float]]
    backward_ends: list[list[float]]
    send_starts: list[list[float]]
    gradient_send_starts: list[list[float]]
    all_reduce_starts: list[float]
    end_s: float
    weights_ends: list[list[float]] | None = None

    @property
    def release_times(self) -> list[list[float]]:
        """The times when the activations of each micro-batch are released."""
        return self.backward_ends if self.weights_ends is None else self.weights_ends


def compute_timetable(
    stages: Sequence[StageTimes], schedule: Schedule, micro_batches: int, rounds: int = 1
) -> Timetable:
    """Return the timetable of a step.

    A group of devices has one stage, or one in each of several rounds. Between two groups one link
    carries outputs and gradients, in the order of the sender's passes. After its last pass a group
    sums the gradients of its stages, one by one.

    Args:
        stages: All stages. The distance between the stages of a group is the number of groups. If
            groups have several stages, no all-reduce overlaps with passes.
        schedule: The schedule; interleaved if there are several rounds.
        micro_batches: Their number; with several rounds a multiple of the number of groups.
        rounds: The number of stages of each group.

    Raises:
        ValueError: There are several rounds, and the schedule is not interleaved.
    """
    step = _Step(stages, schedule, micro_batches, rounds)
    step.simulation.run()
    all_reduce_starts, end_s = step.schedule_all_reduces()
    return Timetable(
        forward_starts=[row.starts for row in step.forward],
        backward_ends=[row.ends for row in step.backward],
        send_starts=[*step.sends, []],
        gradient_send_starts=[[], *step.returns],
        all_reduce_starts=all_reduce_starts,
        end_s=end_s,
        weights_ends=[row.ends for row in step.weights] if step.weights else None,
    )


def compute_step_end(
    stages: Sequence[StageTimes],
    schedule: Schedule,
    micro_batches: int,
    rounds: int = 1,
    *,
    limit: float = inf,
) -> float:
    """Return the end of a step, or infinity as soon as it certainly exceeds a limit.

    Args:
        stages: See `compute_timetable`.
        schedule: See `compute_timetable`.
        micro_batches: See `compute_timetable`.
        rounds: See `compute_timetable`.
        limit: Seconds.
    """
    step = _Step(stages, schedule, micro_batches, rounds)
    if limit == inf:
        step.simulation.run()
    elif not step.simulation.run_within(limit * _ROUNDING_TOLERANCE, step.sum_pass_seconds()):
        return inf
    _, end_s = step.schedule_all_reduces()
    return end_s


class _Step:
    """A step as tasks of groups of devices.

    Attributes:
        forward: The forward passes of each stage.
        backward: The backward passes of each stage; with zb-h1 their gradients of data.
        weights: With zb-h1, the gradients of weights of each stage.
        sends: The starts of messages from each stage except the last to the next one.
        returns: The starts of messages from each stage except the first to the previous one.
    """

    def __init__(
        self, stages: Sequence[StageTimes], schedule: Schedule, micro_batches: int, rounds: int
    ) -> None:
        if rounds > 1 and schedule != INTERLEAVED:
            raise ValueError(f"schedule {schedule} has one round (expected 1, got {rounds})")
        groups = len(stages) // rounds
        self._stages = stages
        self._groups = groups
        self._micro_batches = micro_batches
        splits_backward = schedule == ZERO_BUBBLE
        self.forward = [
            TaskRow(stage.forward_s, micro_batches, needs_input=index > 0)
            for index, stage in enumerate(stages)
        ]
        self.backward = [
            TaskRow(
                stage.backward_s * (stage.data_share if splits_backward else 1.0), micro_batches
            )
            for stage in stages
        ]
        self.weights = [
            TaskRow(stage.backward_s - data.seconds, micro_batches, needs_input=False)
            for stage, data in zip(stages, self.backward, strict=True)
            if splits_backward
        ]
        self.sends = []
        self.returns = []
        for index, stage in enumerate(stages[:-1]):
            group = index % groups
            next_group = (index + 1) % groups
            forward_link = group * groups + next_group
            backward_link = next_group * groups + group
            forward, next_forward = self.forward[index : index + 2]
            backward, next_backward = self.backward[index : index + 2]
            self.sends.append(forward.feed(next_forward, link=forward_link, seconds=stage.send_s))
            self.returns.append(
                next_backward.feed(backward, link=backward_link, seconds=stage.send_s)
            )
        self.forward[-1].feed(self.backward[-1])
        self.simulation = StepSimulation(
            _list_orders_by_group(schedule, groups, rounds, micro_batches),
            [*self.forward, *self.backward, *self.weights],
            groups**2,
        )

    def sum_pass_seconds(self) -> list[float]:
        """Return the total seconds of all passes of each group."""
        return [
            self._micro_batches
            * sum(
                stage.forward_s + stage.backward_s for stage in self._stages[group :: self._groups]
            )
            for group in range(self._groups)
        ]

    def schedule_all_reduces(self) -> tuple[list[float], float]:
        """Return the start of each stage's all-reduce, and the end of the step."""
        starts_s = []
        ends_s_by_group = list(self.simulation.free_at)
        for index, stage in enumerate(self._stages):
            group = index % self._groups
            starts_s.append(ends_s_by_group[group] - stage.overlapped_s)
            ends_s_by_group[group] = (
                ends_s_by_group[group] + stage.all_reduce_s - stage.overlapped_s
            )
        return starts_s, max(*self.simulation.free_at, *ends_s_by_group)


def _list_orders_by_group(
    schedule: Schedule, groups: int, rounds: int, micro_batches: int
) -> Sequence[Sequence[RowTask]]:
    """Return the tasks of each group; rows are sorted by kind and then by stage."""
    fits_cache = groups * rounds * micro_batches <= _MAX_CACHED_TASKS
    build_orders = _build_cached_orders if fits_cache else _build_orders
    return build_orders(schedule, groups, rounds, micro_batches)


def _build_orders(
    schedule: Schedule, groups: int, rounds: int, micro_batches: int
) -> Sequence[Sequence[RowTask]]:
    if schedule == INTERLEAVED:
        return [
            _build_interleaved_order(group, groups, rounds, micro_batches)
            for group in range(groups)
        ]
    return [_build_stage_order(schedule, group, groups, micro_batches) for group in range(groups)]


_build_cached_orders = lru_cache(maxsize=64)(_build_orders)


def _build_stage_order(
    schedule: str, stage: int, stages: int, micro_batches: int
) -> Sequence[RowTask]:
    forward, backward, weights = (
        zip(repeat(kind_index * stages + stage), range(micro_batches)) for kind_index in range(3)
    )
    if schedule == ZERO_BUBBLE:
        tasks_by_kind = {"forward": forward, "data": backward, "weights": weights}
        return [
            next(tasks_by_kind[kind])
            for kind in list_zero_bubble_kinds(stage, stages, micro_batches)
        ]
    return order_passes(schedule, stage, stages, list(forward), list(backward))


def _build_interleaved_order(
    group: int, groups: int, rounds: int, micro_batches: int
) -> Sequence[RowTask]:
    stages = groups * rounds
    first_row_by_kind = {"forward": 0, "backward": stages}
    return [
        (first_row_by_kind[task.kind] + task.stage, task.micro_batch)
        for task in list_interleaved_tasks(group, groups, rounds, range(micro_batches))
    ]
