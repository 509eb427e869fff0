"""The step time in closed form: the longest of the known paths through a step.

A path is a chain of events, each of which waits for the one before. So a step takes at least as
long as the longest path.

* ``gpipe``: the longest path is exactly the step time.
* ``1f1b`` and ``1f1b-deep``: paths on which one stage is never idle between its first and its last
  pass, and paths that go round two stages again and again. A round goes down from the upper stage
  with a forward pass, turns at the lower one, and goes up with a backward pass to the next forward
  pass that waits for it. Both are exact for even stages without messages. In other pipelines the
  longest path can switch between them, and only `timetable` finds its length.
* ``zb-h1``: the same paths until the last data gradients of a stage; from then on no stage is idle.
* ``interleaved``: paths on which one group of devices, or one link, is never idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import add

from spbench_core.schedule.orders import (
    INTERLEAVED,
    ZERO_BUBBLE,
    Schedule,
    StageSchedule,
    count_trailing_weights,
    stage_in_flight,
)
from spbench_core.schedule.timetable import StageTimes


def estimate_step(
    stages: Sequence[StageTimes], schedule: Schedule, micro_batches: int, rounds: int = 1
) -> float:
    """Return the seconds of a step, or a lower bound if no closed form is exact.

    Args:
        stages: The times of all stages.
        schedule: The order of their passes.
        micro_batches: Micro-batches per step.
        rounds: Stages per device.
    """
    if schedule == "gpipe":
        return _compute_gpipe_step(stages, micro_batches)
    if schedule == INTERLEAVED:
        groups = len(stages) // rounds
        return max(
            _compute_busiest_group_path(stages, groups, micro_batches),
            _compute_busiest_link_path(stages, groups, micro_batches),
        )
    if schedule == ZERO_BUBBLE:
        return max(_generate_zero_bubble_paths(stages, micro_batches))
    return max(_generate_1f1b_paths(stages, schedule, micro_batches))


def _compute_exposed_all_reduce(stage: StageTimes) -> float:
    """Return the seconds of the all-reduce after the last backward pass."""
    return max(stage.all_reduce_s - stage.overlapped_s, 0.0)


def _compute_gpipe_step(stages: Sequence[StageTimes], count: int) -> float:
    """Return the time of all forward passes, followed by all backward passes.

    `count` equal jobs go through stages and links in turn. They take the sum of one job's times,
    plus ``count - 1`` times the longest of these.
    """
    forward_s = [stage.forward_s for stage in stages] + [stage.send_s for stage in stages[:-1]]
    all_forward_s = sum(forward_s) + (count - 1) * max(forward_s)
    total = longest = 0.0
    ends: list[float] = []
    for stage in reversed(stages):
        send_s = stage.send_s if ends else 0.0
        total += send_s + stage.backward_s
        longest = max(longest, send_s, stage.backward_s)
        ends.append(
            all_forward_s + total + (count - 1) * longest + _compute_exposed_all_reduce(stage)
        )
    return max(ends)


def _generate_1f1b_paths(
    stages: Sequence[StageTimes], schedule: StageSchedule, count: int
) -> Iterator[float]:
    """Yield the lengths of the known paths under ``1f1b`` and ``1f1b-deep``.

    Args:
        stages: The times of all stages.
        schedule: The order of their passes.
        count: Micro-batches per step.
    """
    total = len(stages)
    # Time of one micro-batch from the first stage down to each stage, and from each one up to it.
    down = list(accumulate((stage.forward_s + stage.send_s for stage in stages), initial=0.0))
    up = list(accumulate((stage.backward_s + stage.send_s for stage in stages), initial=0.0))
    in_flight = [stage_in_flight(schedule, index, total, count) for index in range(total)]
    tails = [_compute_exposed_all_reduce(stage) for stage in stages]
    for index, (stage, limit) in enumerate(zip(stages, in_flight, strict=True)):
        forward = stage.forward_s
        backward = stage.backward_s
        descent = down[-1] - down[index] - forward
        round_trip = descent + up[-1] - up[index] - backward
        steady = (count - limit) * (forward + backward)

        # When the last forward pass of the stage ends, counted from its first.
        last = limit * forward + steady
        if count > limit:
            last = max(last, forward + round_trip + steady)
        for lower in range(index + 1, total):
            turns = in_flight[lower], in_flight[index] - in_flight[lower] + 1
            round_s = down[lower] - down[index] + stages[lower].forward_s
            round_s += up[lower] - up[index] + stages[lower].backward_s
            last = max(last, _compute_last_forward((forward, backward), turns, round_s, count))

        early = forward + round_trip + steady + limit * backward
        end = max(last + max(limit * backward, round_trip + backward), early)
        upper_tails = (up[index] - up[upper] + tails[upper] for upper in range(index + 1))
        yield down[index] + end + max(upper_tails)
        for lower in range(index + 1, total):
            yield down[index] + last + descent + up[-1] - up[lower] + tails[lower]


def _compute_last_forward(
    passes: tuple[float, float], turns: tuple[int, int], round_s: float, count: int
) -> float:
    """Return the end of a stage's last forward pass if it only waits for rounds.

    Args:
        passes: Seconds of the forward and backward pass of the upper stage of a round.
        turns: The micro-batches in flight of the lower stage, and the number of micro-batches by
            which the forward pass of the upper stage advances in each round.
        round_s: Seconds of a round.
        count: Micro-batches per step.
    """
    first, gain = turns
    rounds, left = divmod(count - first, gain)
    if not rounds:
        return 0.0
    return first * passes[0] + rounds * round_s + left * sum(passes)


def _generate_zero_bubble_paths(stages: Sequence[StageTimes], count: int) -> Iterator[float]:
    """Yield the lengths of the known paths under ``zb-h1``.

    A stage begins when the first micro-batch arrives. Until its last data gradients it is never
    idle, or it waits for rounds as in ``1f1b``. The data gradients then go up from stage to stage,
    each of which still has weight gradients to compute.
    """
    total = len(stages)
    delayed = [count_trailing_weights(index, total, count) for index in range(total)]
    in_flight = [stage_in_flight("1f1b", index, total, count) for index in range(total)]
    data = [stage.backward_s * stage.data_share for stage in stages]
    weights = [stage.backward_s * (1.0 - stage.data_share) for stage in stages]
    send = [stage.send_s for stage in stages]
    down = list(accumulate((stage.forward_s + stage.send_s for stage in stages), initial=0.0))
    up = list(accumulate(map(add, data, send), initial=0.0))
    end = 0.0
    for index in reversed(range(total)):
        stage = stages[index]
        passes = (stage.forward_s, data[index])
        busy = count * sum(passes) + (count - delayed[index]) * weights[index]
        last = 0.0
        for lower in range(index + 1, total):
            round_s = down[lower] - down[index] + stages[lower].forward_s
            round_s += up[lower] - up[index] + data[lower]
            turns = in_flight[lower], in_flight[index] - in_flight[lower] + 1
            last = max(last, _compute_last_forward(passes, turns, round_s, count))
        # From the end of the last forward pass down to the last stage, and back up to this one.
        return_s = down[-1] - down[index] - stage.forward_s + up[-1] - up[index]
        longest = down[index] + max(busy, last + return_s if last else 0.0)
        end = max(end + stage.send_s + data[index], longest)
        yield end + delayed[index] * weights[index] + _compute_exposed_all_reduce(stage)


def _compute_busiest_group_path(stages: Sequence[StageTimes], groups: int, count: int) -> float:
    """Return the longest path on which one group runs all its passes without a pause.

    Its first pass waits until one micro-batch arrives from the first stage. After its last pass the
    gradient goes up to the first stage, where other groups end.
    """
    down = after = longest = 0.0
    for group, stage in enumerate(stages[:groups]):
        group_stages = stages[group::groups]
        busy = count * sum(virtual.forward_s + virtual.backward_s for virtual in group_stages)
        after = max(after, sum(virtual.all_reduce_s for virtual in group_stages))
        longest = max(longest, down + busy + after)
        down += stage.forward_s + stage.send_s
        after += stage.backward_s + stage.send_s
    return longest


def _compute_busiest_link_path(stages: Sequence[StageTimes], groups: int, count: int) -> float:
    """Return the longest time in which the messages of one link follow each other.

    The first message waits for a forward pass, and a pass runs after the last one.
    """
    busy: dict[tuple[int, int], float] = {}
    for index, stage in enumerate(stages[:-1]):
        source = index % groups
        target = (index + 1) % groups
        for link in ((source, target), (target, source)):
            busy[link] = busy.get(link, 0.0) + count * stage.send_s
    shortest = min(min(stage.forward_s, stage.backward_s) for stage in stages)
    return stages[0].forward_s + max(busy.values()) + shortest
