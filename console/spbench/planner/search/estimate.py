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
    count_in_flight,
    count_trailing_weights,
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
        return _compute_gpipe_step_s(stages, micro_batches)
    if schedule == INTERLEAVED:
        groups = len(stages) // rounds
        return max(
            _compute_busiest_group_path_s(stages, groups, micro_batches),
            _compute_busiest_link_path_s(stages, groups, micro_batches),
        )
    if schedule == ZERO_BUBBLE:
        return max(_generate_zero_bubble_path_lengths_s(stages, micro_batches))
    return max(_generate_1f1b_path_lengths_s(stages, schedule, micro_batches))


def _compute_exposed_all_reduce_s(stage: StageTimes) -> float:
    """Return the seconds of the all-reduce after the last backward pass."""
    return max(stage.all_reduce_s - stage.overlapped_s, 0.0)


def _compute_gpipe_step_s(stages: Sequence[StageTimes], micro_batches: int) -> float:
    """Return the time of all forward passes, followed by all backward passes.

    The micro-batches go through stages and links in turn. They take the sum of one micro-batch's
    times, plus ``micro_batches - 1`` times the longest of these.
    """
    forward_s = [stage.forward_s for stage in stages] + [stage.send_s for stage in stages[:-1]]
    all_forward_s = sum(forward_s) + (micro_batches - 1) * max(forward_s)
    one_backward_s = longest_s = 0.0
    ends_s: list[float] = []
    for stage in reversed(stages):
        send_s = stage.send_s if ends_s else 0.0
        one_backward_s += send_s + stage.backward_s
        longest_s = max(longest_s, send_s, stage.backward_s)
        ends_s.append(
            all_forward_s
            + one_backward_s
            + (micro_batches - 1) * longest_s
            + _compute_exposed_all_reduce_s(stage)
        )
    return max(ends_s)


def _generate_1f1b_path_lengths_s(
    stages: Sequence[StageTimes], schedule: StageSchedule, micro_batches: int
) -> Iterator[float]:
    """Yield the lengths of the known paths under ``1f1b`` and ``1f1b-deep``.

    Args:
        stages: The times of all stages.
        schedule: The order of their passes.
        micro_batches: Micro-batches per step.
    """
    stage_count = len(stages)
    # Sums from the first stage on, so that the way between two stages is a difference.
    down_s = list(accumulate((stage.forward_s + stage.send_s for stage in stages), initial=0.0))
    up_s = list(accumulate((stage.backward_s + stage.send_s for stage in stages), initial=0.0))
    in_flight = [
        count_in_flight(schedule, index, stage_count, micro_batches) for index in range(stage_count)
    ]
    exposed_all_reduce_s = [_compute_exposed_all_reduce_s(stage) for stage in stages]
    for index, (stage, max_in_flight) in enumerate(zip(stages, in_flight, strict=True)):
        forward_s = stage.forward_s
        backward_s = stage.backward_s
        descent_s = down_s[-1] - down_s[index] - forward_s
        round_trip_s = descent_s + up_s[-1] - up_s[index] - backward_s
        steady_s = (micro_batches - max_in_flight) * (forward_s + backward_s)

        # Counted from the stage's first forward pass, since `down_s` is added at the end.
        last_forward_end_s = max_in_flight * forward_s + steady_s
        if micro_batches > max_in_flight:
            last_forward_end_s = max(last_forward_end_s, forward_s + round_trip_s + steady_s)
        for lower in range(index + 1, stage_count):
            round_limits = in_flight[lower], in_flight[index] - in_flight[lower] + 1
            round_s = down_s[lower] - down_s[index] + stages[lower].forward_s
            round_s += up_s[lower] - up_s[index] + stages[lower].backward_s
            last_forward_end_s = max(
                last_forward_end_s,
                _compute_last_forward_end_s(
                    (forward_s, backward_s), round_limits, round_s, micro_batches
                ),
            )

        early_end_s = forward_s + round_trip_s + steady_s + max_in_flight * backward_s
        end_s = max(
            last_forward_end_s + max(max_in_flight * backward_s, round_trip_s + backward_s),
            early_end_s,
        )
        upper_ends_s = (
            up_s[index] - up_s[upper] + exposed_all_reduce_s[upper] for upper in range(index + 1)
        )
        yield down_s[index] + end_s + max(upper_ends_s)
        for lower in range(index + 1, stage_count):
            yield (
                down_s[index]
                + last_forward_end_s
                + descent_s
                + up_s[-1]
                - up_s[lower]
                + exposed_all_reduce_s[lower]
            )


def _compute_last_forward_end_s(
    passes_s: tuple[float, float], round_limits: tuple[int, int], round_s: float, micro_batches: int
) -> float:
    """Return the end of a stage's last forward pass if it only waits for rounds.

    Args:
        passes_s: Seconds of the forward and backward pass of the upper stage of a round.
        round_limits: The micro-batches in flight of the lower stage, and the number of
            micro-batches by which the forward pass of the upper stage advances in each round.
        round_s: Seconds of a round.
        micro_batches: Micro-batches per step.
    """
    lower_in_flight, advance = round_limits
    rounds, remaining = divmod(micro_batches - lower_in_flight, advance)
    if not rounds:
        return 0.0
    return lower_in_flight * passes_s[0] + rounds * round_s + remaining * sum(passes_s)


def _generate_zero_bubble_path_lengths_s(
    stages: Sequence[StageTimes], micro_batches: int
) -> Iterator[float]:
    """Yield the lengths of the known paths under ``zb-h1``.

    A stage begins when the first micro-batch arrives. Until its last data gradients it is never
    idle, or it waits for rounds as in ``1f1b``. The data gradients then go up from stage to stage,
    each of which still has weight gradients to compute.
    """
    stage_count = len(stages)
    delayed_weights = [
        count_trailing_weights(index, stage_count, micro_batches) for index in range(stage_count)
    ]
    in_flight = [
        count_in_flight("1f1b", index, stage_count, micro_batches) for index in range(stage_count)
    ]
    data_s = [stage.backward_s * stage.data_share for stage in stages]
    weights_s = [stage.backward_s * (1.0 - stage.data_share) for stage in stages]
    send_s = [stage.send_s for stage in stages]
    down_s = list(accumulate((stage.forward_s + stage.send_s for stage in stages), initial=0.0))
    up_s = list(accumulate(map(add, data_s, send_s), initial=0.0))
    data_end_s = 0.0
    for index in reversed(range(stage_count)):
        stage = stages[index]
        passes_s = (stage.forward_s, data_s[index])
        busy_s = (
            micro_batches * sum(passes_s)
            + (micro_batches - delayed_weights[index]) * weights_s[index]
        )
        last_forward_end_s = 0.0
        for lower in range(index + 1, stage_count):
            round_s = down_s[lower] - down_s[index] + stages[lower].forward_s
            round_s += up_s[lower] - up_s[index] + data_s[lower]
            round_limits = in_flight[lower], in_flight[index] - in_flight[lower] + 1
            last_forward_end_s = max(
                last_forward_end_s,
                _compute_last_forward_end_s(passes_s, round_limits, round_s, micro_batches),
            )
        # The last micro-batch goes down to the last stage before its gradient comes back.
        return_s = down_s[-1] - down_s[index] - stage.forward_s + up_s[-1] - up_s[index]
        own_end_s = down_s[index] + max(
            busy_s, last_forward_end_s + return_s if last_forward_end_s else 0.0
        )
        data_end_s = max(data_end_s + stage.send_s + data_s[index], own_end_s)
        yield (
            data_end_s
            + delayed_weights[index] * weights_s[index]
            + _compute_exposed_all_reduce_s(stage)
        )


def _compute_busiest_group_path_s(
    stages: Sequence[StageTimes], groups: int, micro_batches: int
) -> float:
    """Return the longest path on which one group runs all its passes without a pause.

    Its first pass waits until one micro-batch arrives from the first stage. After its last pass the
    gradient goes up to the first stage, where other groups end.
    """
    down_s = after_s = longest_s = 0.0
    for group, stage in enumerate(stages[:groups]):
        group_stages = stages[group::groups]
        busy_s = micro_batches * sum(
            virtual.forward_s + virtual.backward_s for virtual in group_stages
        )
        after_s = max(after_s, sum(virtual.all_reduce_s for virtual in group_stages))
        longest_s = max(longest_s, down_s + busy_s + after_s)
        down_s += stage.forward_s + stage.send_s
        after_s += stage.backward_s + stage.send_s
    return longest_s


def _compute_busiest_link_path_s(
    stages: Sequence[StageTimes], groups: int, micro_batches: int
) -> float:
    """Return the longest time in which the messages of one link follow each other.

    The first message waits for a forward pass, and a pass runs after the last one.
    """
    busy_s_by_link: dict[tuple[int, int], float] = {}
    for index, stage in enumerate(stages[:-1]):
        source = index % groups
        target = (index + 1) % groups
        for link in ((source, target), (target, source)):
            busy_s_by_link[link] = busy_s_by_link.get(link, 0.0) + micro_batches * stage.send_s
    shortest_pass_s = min(min(stage.forward_s, stage.backward_s) for stage in stages)
    return stages[0].forward_s + max(busy_s_by_link.values()) + shortest_pass_s
