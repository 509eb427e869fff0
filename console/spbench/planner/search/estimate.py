"""The step time in closed form: the longest of the paths through a step that are known.

Every path is a chain of events each of which waits for the one before, so a step takes at least
as long as the longest. For ``gpipe`` that is the step time exactly. For ``1f1b`` and ``1f1b-deep``
the paths are those on which one stage is never idle between its first and its last pass, and
those that go round two stages, over and over: down from one with a forward pass, through the turn
at the other, and up with a backward pass to the next forward pass that waits for it. For even
stages without messages they are exact as well. In others the longest path can change from one of
these to another on its way, and only `timetable` knows how long it is. For ``zb-h1`` they are those
on which one stage is never idle, or two go round, until its last gradients of data, and never from
then on. For ``interleaved`` they are those on which one group of devices, or one link, never is.
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
    """Return the seconds of a step, or less where no closed form is exact.

    Args:
        stages: All of them.
        schedule: The order of their passes.
        micro_batches: Of a step.
        rounds: Stages of each device.
    """
    if schedule == "gpipe":
        return _two_flows(stages, micro_batches)
    if schedule == INTERLEAVED:
        groups = len(stages) // rounds
        return max(
            _busiest_group(stages, groups, micro_batches),
            _busiest_link(stages, groups, micro_batches),
        )
    if schedule == ZERO_BUBBLE:
        return max(_split_paths(stages, micro_batches))
    return max(_paths(stages, schedule, micro_batches))


def _tail(stage: StageTimes) -> float:
    """Return how long the all-reduce takes after the last backward pass."""
    return max(stage.all_reduce_s - stage.overlapped_s, 0.0)


def _two_flows(stages: Sequence[StageTimes], count: int) -> float:
    """Return the time of all forward passes through all stages, and all backward ones back.

    ``count`` equal jobs go through stages and links in turn: the sum of one job's times, and
    ``count - 1`` times the longest of them.
    """
    forward = [stage.forward_s for stage in stages] + [stage.send_s for stage in stages[:-1]]
    turned = sum(forward) + (count - 1) * max(forward)
    whole = longest = 0.0
    ends: list[float] = []
    for stage in reversed(stages):
        sent = stage.send_s if ends else 0.0
        whole += sent + stage.backward_s
        longest = max(longest, sent, stage.backward_s)
        ends.append(turned + whole + (count - 1) * longest + _tail(stage))
    return max(ends)


def _paths(stages: Sequence[StageTimes], schedule: StageSchedule, count: int) -> Iterator[float]:
    """Yield the lengths of the known paths."""
    total = len(stages)
    down = list(accumulate((stage.forward_s + stage.send_s for stage in stages), initial=0.0))
    up = list(accumulate((stage.backward_s + stage.send_s for stage in stages), initial=0.0))
    most = [stage_in_flight(schedule, at, total, count) for at in range(total)]
    tails = [_tail(stage) for stage in stages]
    for at, (stage, kept) in enumerate(zip(stages, most, strict=True)):
        forward = stage.forward_s
        backward = stage.backward_s
        descent = down[-1] - down[at] - forward
        beyond = descent + up[-1] - up[at] - backward
        rest = (count - kept) * (forward + backward)
        last = kept * forward + rest  # when the last forward pass ends
        if count > kept:
            last = max(last, forward + beyond + rest)
        for other in range(at + 1, total):
            turns = most[other], most[at] - most[other] + 1
            through = down[other] - down[at] + stages[other].forward_s
            through += up[other] - up[at] + stages[other].backward_s
            last = max(last, _rounds((forward, backward), turns, through, count))
        early = forward + beyond + rest + kept * backward
        end = max(last + max(kept * backward, beyond + backward), early)
        yield down[at] + end + max(up[at] - up[to] + tails[to] for to in range(at + 1))
        for to in range(at + 1, total):
            yield down[at] + last + descent + up[-1] - up[to] + tails[to]


def _rounds(both: tuple[float, float], turns: tuple[int, int], through: float, count: int) -> float:
    """Return when the last forward pass of a stage ends that waits for round trips only.

    Args:
        both: Seconds of the passes of the upper stage of a round.
        turns: How many micro-batches the lower one has in flight, and how many later the upper
            one's forward pass is after each round.
        through: Seconds of a round.
        count: Micro-batches.
    """
    first, gain = turns
    rounds, left = divmod(count - first, gain)
    if not rounds:
        return 0.0
    return first * both[0] + rounds * through + left * sum(both)


def _split_paths(stages: Sequence[StageTimes], count: int) -> Iterator[float]:
    """Yield the lengths of the known paths where gradients of weights are apart from those of data.

    A stage begins when the first micro-batch has come down to it. Until its last gradients of data
    it is never idle, or waits for rounds as in ``1f1b``. They go up from stage to stage, each of
    which then has gradients of weights left to compute.
    """
    total = len(stages)
    left = [count_trailing_weights(at, total, count) for at in range(total)]
    most = [stage_in_flight("1f1b", at, total, count) for at in range(total)]  # of data
    data = [stage.backward_s * stage.data_share for stage in stages]
    weights = [stage.backward_s * (1.0 - stage.data_share) for stage in stages]
    sends = [stage.send_s for stage in stages]
    down = list(accumulate((stage.forward_s + stage.send_s for stage in stages), initial=0.0))
    up = list(accumulate(map(add, data, sends), initial=0.0))
    end = 0.0
    for at in reversed(range(total)):
        stage = stages[at]
        both = (stages[at].forward_s, data[at])
        busy = count * sum(both) + (count - left[at]) * weights[at]
        last = 0.0
        for other in range(at + 1, total):
            through = down[other] - down[at] + stages[other].forward_s
            through += up[other] - up[at] + data[other]
            turns = most[other], most[at] - most[other] + 1
            last = max(last, _rounds(both, turns, through, count))
        beyond = down[-1] - down[at] - stage.forward_s + up[-1] - up[at]
        longest = down[at] + max(busy, last + beyond if last else 0.0)
        end = max(end + stage.send_s + data[at], longest)
        yield end + left[at] * weights[at] + _tail(stage)


def _busiest_group(stages: Sequence[StageTimes], groups: int, count: int) -> float:
    """Return the longest way on which one group runs all its passes without a pause.

    Its first pass waits for one micro-batch to come down from the first stage, and after its last
    one the gradient goes up to there, on which way other groups end.
    """
    down = rest = longest = 0.0
    for group, stage in enumerate(stages[:groups]):
        own = stages[group::groups]
        busy = count * sum(each.forward_s + each.backward_s for each in own)
        rest = max(rest, sum(each.all_reduce_s for each in own))
        longest = max(longest, down + busy + rest)
        down += stage.forward_s + stage.send_s
        rest += stage.backward_s + stage.send_s
    return longest


def _busiest_link(stages: Sequence[StageTimes], groups: int, count: int) -> float:
    """Return the longest time in which the messages of one link follow each other.

    The first one waits for a forward pass, and after the last one there is a pass to run.
    """
    busy: dict[tuple[int, int], float] = {}
    for at, stage in enumerate(stages[:-1]):
        source = at % groups
        target = (at + 1) % groups
        for link in ((source, target), (target, source)):
            busy[link] = busy.get(link, 0.0) + count * stage.send_s
    last = min(min(stage.forward_s, stage.backward_s) for stage in stages)
    return stages[0].forward_s + max(busy.values()) + last
