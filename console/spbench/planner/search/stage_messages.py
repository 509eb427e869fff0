"""Messages between the stages of a plan, and the way that skip connections take past stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from spbench.planner.cluster.placement import DeviceGroup
from spbench.planner.plans import ALONG, STRAIGHT, SkipRoute
from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel

_LEAST_PASSED = 3
"""The fewest stages of which one can be passed."""


class StageMessages(NamedTuple):
    """The messages of a micro-batch between stages.

    Attributes:
        send_s: By stage, the seconds until the next one has its inputs. What it gets from stages
            further up shares its link with what comes from the stage before it.
        overhead_s: By stage, for how long they keep its devices from computing.
    """

    send_s: list[float]
    overhead_s: list[float]


def compute_messages(cost_model: CostModel, shape: Shape, micro_batch: int) -> StageMessages:
    """Return the messages of a shape's stages."""
    spans = shape.spans
    groups = [group for *_, group in spans]
    made = StageMessages([0.0] * len(spans), [0.0] * len(spans))
    ways: dict[tuple[int, int], float] = {}
    if choose_skip_route(cost_model, shape, micro_batch) == STRAIGHT:
        ways = cost_model.skip_routes(shape.ends, micro_batch)
    for at, ((*_, source), (start, end, target)) in enumerate(pairwise(spans)):
        count = cost_model.crossing_bytes(start, micro_batch)
        if ways:
            count = max(0.0, count - cost_model.passing_bytes(start, end, micro_batch))
        made.send_s[at] = cost_model.links.transfer_cost(source, target).seconds(count)
        further = sum(size for (_, to), size in ways.items() if to == at + 1)
        _add_overhead(cost_model, groups, made, (at, at + 1), max(0.0, count - further))
    for way, count in ways.items():
        _add_overhead(cost_model, groups, made, way, count)
    return made


def _add_overhead(
    cost_model: CostModel,
    groups: Sequence[DeviceGroup],
    made: StageMessages,
    way: tuple[int, int],
    count: float,
) -> None:
    seconds = cost_model.overhead_s(groups[way[0]], groups[way[1]], count)
    for at in way:
        made.overhead_s[at] += seconds


def choose_skip_route(cost_model: CostModel, shape: Shape, micro_batch: int) -> SkipRoute | None:
    """Return the way that skip connections take past stages; None where there are none.

    They go straight where that spares the stages between more time in messages than the messages
    take that there are more.
    """
    spans = shape.spans
    if len(spans) < _LEAST_PASSED or not cost_model.states.skips.connections:
        return None
    links = cost_model.links
    spared = found = 0.0
    for (*_, source), (start, end, target) in pairwise(spans):
        past = cost_model.passing_bytes(start, end, micro_batch)
        found += past
        rates = links.transfer_cost(source, target), links.overhead_cost(source, target)
        spared += past * sum(rate.per_byte for rate in rates)
    if not found:
        return None
    taken = 0.0
    for way in cost_model.skip_routes(shape.ends, micro_batch):
        source, target = (spans[at][2] for at in way)
        taken += (
            links.transfer_cost(source, target).latency
            + links.overhead_cost(source, target).latency
        )
    return STRAIGHT if taken <= spared else ALONG
