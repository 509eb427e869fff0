"""The joints of a stage: the ways of messages to and from the stages beside it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from spbench_workers.layout_models import ModelLayout, Place
from spbench_workers.parallel.balance import layer_ranges
from spbench_workers.parallel.carriers import Carrier
from spbench_workers.parallel.links import Incoming, Outgoing, Way
from spbench_workers.parallel.parcels import Holding, holding
from spbench_workers.parallel.places import groups_of
from spbench_workers.parallel.plan import Plan
from spbench_workers.parallel.stage_runner import Ends


def tag_of(direction: int, joint: int, *, backward: bool) -> int:
    """Return the tag of what goes between two stages, one way.

    A rank has at most one stage of each direction, and a stage's two joints differ in parity: so
    of each tag a rank only sends, or only receives.

    Args:
        direction: Of the model.
        joint: The stage before it.
        backward: Whether gradients go, to the stage before.
    """
    return 4 * direction + 2 * (joint % 2) + backward


def tags_of(layout: ModelLayout) -> tuple[int, ...]:
    """Return the tags of all messages between stages, ascending."""
    joints = range(len(layout.stages) - 1)
    ways = product(layout.directions, joints, (False, True))
    return tuple(sorted({tag_of(way, joint, backward=back) for way, joint, back in ways}))


def ends_of(carrier: Carrier, rank: int, plan: Plan, place: Place) -> Ends:
    """Return how a rank's stage is joined to those beside it.

    Args:
        carrier: What carries messages among all ranks of the layout.
        rank: This one.
        plan: What is computed, and where.
        place: Where this rank stands.
    """
    first, last = layer_ranges(plan.balance)[place.stage]
    groups = groups_of(plan.layout, rank, place.direction)
    before = _ways(carrier, plan, place, groups.previous, first)
    after = _ways(carrier, plan, place, groups.next, last)
    return Ends(
        inputs=Incoming(before(False)) if groups.previous else None,
        outputs=Outgoing(after(False)) if groups.next else None,
        output_gradients=Incoming(after(True)) if groups.next else None,
        input_gradients=Outgoing(before(True)) if groups.previous else None,
    )


def _ways(
    carrier: Carrier, plan: Plan, place: Place, ranks: tuple[int, ...], layer: int
) -> Callable[[bool], Way]:
    """Return what makes the way of a layer's inputs, or of their gradients, to or from ranks."""
    layout, flow = plan.layout, plan.model.flows[layer]
    sizes = [batch.size for batch in plan.batches if batch.direction == place.direction]

    def held(by: Place) -> dict[int, Holding]:
        return {size: holding(layout, by, flow, size) for size in set(sizes)}

    mine = held(place)
    theirs = {rank: held(layout.place(rank, place.direction)) for rank in ranks}
    peers = {size: {rank: one[size] for rank, one in theirs.items()} for size in mine}

    # The joint that a layer's inputs pass is that before its stage.
    joint = place.stage - (layer == layer_ranges(plan.balance)[place.stage][0])

    def way(backward: bool) -> Way:
        tag = tag_of(place.direction, joint, backward=backward)
        return Way.between(carrier, tag, sizes, mine, peers, dtype=plan.dtype, device=plan.device)

    return way
