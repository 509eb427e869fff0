"""The joints of a stage: the ways of messages to and from the stages beside it."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from spbench_workers.layout_models import Place
from spbench_workers.parallel.balance import layer_ranges
from spbench_workers.parallel.links import Incoming, Outgoing, Way
from spbench_workers.parallel.parcels import Holding, holding
from spbench_workers.parallel.places import groups_of
from spbench_workers.parallel.plan import Plan
from spbench_workers.parallel.stage_runner import Ends


def ends_of(comm: MPI.Intracomm, plan: Plan, place: Place) -> Ends:
    """Return how a rank's stage is joined to those beside it.

    Args:
        comm: All ranks of the layout; for these messages alone.
        plan: What is computed, and where.
        place: Where this rank stands.
    """
    first, last = layer_ranges(plan.balance)[place.stage]
    groups = groups_of(plan.layout, comm.rank, place.direction)
    before = _ways(comm, plan, place, groups.previous, first)
    after = _ways(comm, plan, place, groups.next, last)
    return Ends(
        inputs=Incoming(before(False)) if groups.previous else None,
        outputs=Outgoing(after(False)) if groups.next else None,
        output_gradients=Incoming(after(True)) if groups.next else None,
        input_gradients=Outgoing(before(True)) if groups.previous else None,
    )


def _ways(
    comm: MPI.Intracomm, plan: Plan, place: Place, ranks: tuple[int, ...], layer: int
) -> Callable[[bool], Way]:
    """Return what makes the way of a layer's inputs, or of their gradients, to or from ranks."""
    layout, flow = plan.layout, plan.model.flows[layer]
    sizes = [batch.size for batch in plan.batches if batch.direction == place.direction]

    def held(by: Place) -> dict[int, Holding]:
        return {size: holding(layout, by, flow, size) for size in set(sizes)}

    mine = held(place)
    theirs = {rank: held(layout.place(rank, place.direction)) for rank in ranks}
    peers = {size: {rank: one[size] for rank, one in theirs.items()} for size in mine}

    def way(backward: bool) -> Way:
        # Of two ranks, at most one stage of each direction lies on each: this tells all apart.
        tag = 2 * place.direction + backward
        return Way.between(comm, tag, sizes, mine, peers, dtype=plan.dtype, device=plan.device)

    return way
