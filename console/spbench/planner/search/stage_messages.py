"""Messages between the stages of a plan, and the route of skip connections."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from spbench.planner.plans import ROUTE_ALONG, ROUTE_STRAIGHT, SkipRoute
from spbench.planner.search.candidates import Shape
from spbench.planner.search.cost_model import CostModel

_MIN_STAGES_WITH_SKIPS = 3


class StageMessages(NamedTuple):
    """The messages of a micro-batch between stages.

    Attributes:
        send_s: By stage, the seconds until the next stage has its inputs. Inputs from stages
            further up share a link with those from the stage before it.
        overhead_s: By stage, the seconds for which messages keep its devices from computing.
    """

    send_s: list[float]
    overhead_s: list[float]


def compute_messages(cost_model: CostModel, shape: Shape, micro_batch_size: int) -> StageMessages:
    """Return the messages of a shape's stages."""
    spans = shape.spans
    groups = [group for *_, group in spans]
    send_s_by_stage = [0.0] * len(spans)
    overhead_s_by_stage = [0.0] * len(spans)

    def add_overhead(source: int, target: int, message_bytes: float) -> None:
        busy_s = cost_model.compute_overhead_s(groups[source], groups[target], message_bytes)
        overhead_s_by_stage[source] += busy_s
        overhead_s_by_stage[target] += busy_s

    bytes_by_route: dict[tuple[int, int], float] = {}
    if choose_skip_route(cost_model, shape, micro_batch_size) == ROUTE_STRAIGHT:
        bytes_by_route = cost_model.find_skip_routes(shape.ends, micro_batch_size)
    for stage, ((*_, source), (start, end, target)) in enumerate(pairwise(spans)):
        message_bytes = cost_model.get_crossing_bytes(start, micro_batch_size)
        if bytes_by_route:
            message_bytes = max(
                0.0, message_bytes - cost_model.compute_passing_bytes(start, end, micro_batch_size)
            )
        send_s_by_stage[stage] = cost_model.message_costs.get_transfer_cost(
            source, target
        ).compute_seconds(message_bytes)
        skipped_bytes = sum(
            size_bytes
            for (_, receiver), size_bytes in bytes_by_route.items()
            if receiver == stage + 1
        )
        add_overhead(stage, stage + 1, max(0.0, message_bytes - skipped_bytes))
    for (sender, receiver), message_bytes in bytes_by_route.items():
        add_overhead(sender, receiver, message_bytes)
    return StageMessages(send_s_by_stage, overhead_s_by_stage)


def choose_skip_route(
    cost_model: CostModel, shape: Shape, micro_batch_size: int
) -> SkipRoute | None:
    """Return the route of skip connections past stages; None if there are none.

    They go straight if that saves the stages between them more message time than the additional
    messages take.
    """
    spans = shape.spans
    if len(spans) < _MIN_STAGES_WITH_SKIPS or not cost_model.states.skips.connections:
        return None
    links = cost_model.message_costs
    saved_s = passing_bytes = 0.0
    for (*_, source), (start, end, target) in pairwise(spans):
        stage_passing_bytes = cost_model.compute_passing_bytes(start, end, micro_batch_size)
        passing_bytes += stage_passing_bytes
        costs = links.get_transfer_cost(source, target), links.get_overhead_cost(source, target)
        saved_s += stage_passing_bytes * sum(cost.s_per_byte for cost in costs)
    if not passing_bytes:
        return None
    added_s = 0.0
    for route in cost_model.find_skip_routes(shape.ends, micro_batch_size):
        source, target = (spans[stage][2] for stage in route)
        costs = links.get_transfer_cost(source, target), links.get_overhead_cost(source, target)
        added_s += sum(cost.latency_s for cost in costs)
    return ROUTE_STRAIGHT if added_s <= saved_s else ROUTE_ALONG
