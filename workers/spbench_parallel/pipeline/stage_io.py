"""Stage I/O: the channels of messages between a stage and the stages before and after it."""

from __future__ import annotations

from itertools import product

from spbench_core.layout.groups import ranks_beside
from spbench_core.layout.stages import ModelLayout, Place
from spbench_core.models.routes import Route, StageRoutes
from spbench_parallel.p2p import P2P
from spbench_parallel.pipeline.reshard import LocalShard, local_shard
from spbench_parallel.pipeline.stage_channel import DirectedRoute, Receiver, Sender, StageChannel
from spbench_parallel.pipeline.stage_runner import End, RouteEnd, StageIO
from spbench_parallel.plan import ModelPlan


def tag_of(layout: ModelLayout, routes: StageRoutes, direction: int, way: DirectedRoute) -> int:
    """Return the tag of the messages of a way.

    From stage to stage, in one round a rank has at most one stage of each direction, and the
    boundaries before and after a stage differ in parity: so of each tag a rank only sends, or only
    receives. In several rounds the same two ranks may have many stage boundaries between them: each
    has tags of its own, and so has each route past stages.

    Args:
        layout: The ranks.
        routes: The routes between stages.
        direction: The direction of the pipeline.
        way: The route, and one of its two directions.
    """
    number = way.route.source if layout.rounds > 1 else way.route.source % 2
    if way.route.passed:
        before = len(layout.stages) if layout.rounds > 1 else 2
        number = before + routes.skips.index(way.route)
    return 2 * (len(layout.directions) * number + direction) + way.backward


def tags_of(layout: ModelLayout, routes: StageRoutes) -> tuple[int, ...]:
    """Return the tags of all messages between stages, ascending."""
    ways = [DirectedRoute(route, back) for route, back in product(routes.routes, (False, True))]
    pairs = product(layout.directions, ways)
    return tuple(sorted({tag_of(layout, routes, direction, way) for direction, way in pairs}))


def stage_io_of(p2p: P2P, plan: ModelPlan, place: Place) -> StageIO:
    """Return the senders and receivers of a place; none where no stage is beside it.

    Args:
        p2p: The transport of messages among all ranks of the layout.
        plan: The model, its layout and its micro-batches.
        place: The place of this rank.
    """
    routes = plan.routes()
    channels = _Channels(p2p, plan, place, routes)
    before = routes.into(place.stage)
    after = routes.out_of(place.stage)
    return StageIO(
        inputs=tuple(channels.end(Receiver, route, backward=False) for route in before),
        outputs=tuple(channels.end(Sender, route, backward=False) for route in after),
        output_gradients=tuple(channels.end(Receiver, route, backward=True) for route in after),
        input_gradients=tuple(channels.end(Sender, route, backward=True) for route in before),
    )


class _Channels:
    """The channels of one place of a rank."""

    def __init__(self, p2p: P2P, plan: ModelPlan, place: Place, routes: StageRoutes) -> None:
        self._p2p = p2p
        self._plan = plan
        self._place = place
        self._routes = routes
        own = (batch.size for batch in plan.batches if batch.direction == place.direction)
        self._sizes = tuple(own)

    def end(self, kind: type[End], route: Route, *, backward: bool) -> RouteEnd[End]:
        """Return this place's end of a route, in one of its two directions."""
        stage = self._place.stage
        routes = self._routes
        tensors = routes.outputs(stage) if route.source == stage else routes.inputs(stage)
        places = tuple(tensors.index(number) for number in route.tensors)
        return RouteEnd(kind(self._channel(DirectedRoute(route, backward))), places)

    def _channel(self, way: DirectedRoute) -> StageChannel:
        plan = self._plan
        layout = self._plan.layout
        place = self._place
        route = way.route
        flow = self._routes.table.flow(route.tensors)

        def held(by: Place) -> dict[int, LocalShard]:
            return {size: local_shard(layout, by, flow, size) for size in set(self._sizes)}

        other = route.source if route.target == place.stage else route.target
        mine = held(place)
        round = layout.round_of(other)
        theirs = {
            rank: held(layout.place(rank, place.direction, round))
            for rank in ranks_beside(layout, place, other)
        }
        peers = {size: {rank: one[size] for rank, one in theirs.items()} for size in mine}
        tag = tag_of(layout, self._routes, place.direction, way)
        return StageChannel.between(
            way, self._p2p, tag, self._sizes, mine, peers, dtype=plan.dtype, device=plan.device
        )
