"""Stage I/O: the channels of messages between a stage and the stages before and after it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from spbench_core.layout.balance import layer_ranges
from spbench_core.layout.groups import groups_of
from spbench_core.layout.stages import ModelLayout, Place
from spbench_workers.p2p import P2P
from spbench_workers.parallel.pipeline.reshard import LocalShard, local_shard
from spbench_workers.parallel.pipeline.stage_channel import Receiver, Sender, StageChannel
from spbench_workers.parallel.pipeline.stage_runner import StageIO
from spbench_workers.parallel.plan import ModelPlan


def tag_of(layout: ModelLayout, direction: int, boundary: int, *, backward: bool) -> int:
    """Return the tag of the messages over a stage boundary, in one of its two directions.

    In one round a rank has at most one stage of each direction, and the boundaries before and after
    a stage differ in parity: so of each tag a rank only sends, or only receives. In several rounds
    the same two ranks may have many stage boundaries between them: each has tags of its own.

    Args:
        layout: The ranks.
        direction: The direction of the pipeline.
        boundary: The stage boundary, by the index of the stage before it.
        backward: True for gradients, which go to the stage before; False for outputs.
    """
    number = boundary if layout.rounds > 1 else boundary % 2
    return 4 * direction + 2 * number + backward


def tags_of(layout: ModelLayout) -> tuple[int, ...]:
    """Return the tags of all messages between stages, ascending."""
    boundaries = range(len(layout.stages) - 1)
    channels = product(layout.directions, boundaries, (False, True))
    return tuple(
        sorted(
            {
                tag_of(layout, direction, boundary, backward=back)
                for direction, boundary, back in channels
            }
        )
    )


def stage_io_of(p2p: P2P, rank: int, plan: ModelPlan, place: Place) -> StageIO:
    """Return the senders and receivers of a rank's stage; None where no stage is beside it.

    Args:
        p2p: The transport of messages among all ranks of the layout.
        rank: This rank.
        plan: The model, its layout and its micro-batches.
        place: This rank's place.
    """
    round = plan.layout.round_of(place.stage)
    groups = groups_of(plan.layout, rank, place.direction, round)
    before = after = None
    if groups.previous:
        before = _channels_to(p2p, plan, place, place.stage - 1, groups.previous)
    if groups.next:
        after = _channels_to(p2p, plan, place, place.stage + 1, groups.next)
    return StageIO(
        inputs=Receiver(before(False)) if before else None,
        outputs=Sender(after(False)) if after else None,
        output_gradients=Receiver(after(True)) if after else None,
        input_gradients=Sender(before(True)) if before else None,
    )


def _channels_to(
    p2p: P2P, plan: ModelPlan, place: Place, other: int, ranks: tuple[int, ...]
) -> Callable[[bool], StageChannel]:
    """Return a function that opens the channel of outputs, or of their gradients (``backward``)."""
    layout, boundary = plan.layout, min(place.stage, other)
    flow = plan.model.flows[layer_ranges(plan.balance)[boundary + 1][0]]
    sizes = [batch.size for batch in plan.batches if batch.direction == place.direction]

    def held(by: Place) -> dict[int, LocalShard]:
        return {size: local_shard(layout, by, flow, size) for size in set(sizes)}

    mine = held(place)
    places = {rank: layout.place(rank, place.direction, layout.round_of(other)) for rank in ranks}
    theirs = {rank: held(there) for rank, there in places.items()}
    peers = {size: {rank: one[size] for rank, one in theirs.items()} for size in mine}

    def channel(backward: bool) -> StageChannel:
        tag = tag_of(layout, place.direction, boundary, backward=backward)
        return StageChannel.between(
            p2p, tag, sizes, mine, peers, dtype=plan.dtype, device=plan.device
        )

    return channel
