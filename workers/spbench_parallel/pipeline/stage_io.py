"""Stage I/O: the messages between a stage and the stages before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Generic, TypeVar

from spbench_core.layout.stages import ModelLayout, RankCoordinates
from spbench_core.models.routes import Route, StageRoutes
from spbench_parallel.p2p import P2P
from spbench_parallel.pipeline.reshard import LocalShard, local_shard
from spbench_parallel.pipeline.stage_channel import DirectedRoute, Receiver, Sender, StageChannel
from spbench_parallel.plan import ModelPlan

End = TypeVar("End", Receiver, Sender)


@dataclass(frozen=True, slots=True)
class RouteEnd(Generic[End]):
    """One end of a route between stages.

    Attributes:
        end: Receives or sends the route's tensors.
        tensor_indices: Their indices among all inputs, or all outputs, of the stage.
    """

    end: End
    tensor_indices: tuple[int, ...]


Receivers = tuple[RouteEnd[Receiver], ...]
Senders = tuple[RouteEnd[Sender], ...]


@dataclass(frozen=True, slots=True)
class StageIO:
    """The messages of a stage to and from other stages, adjacent stages first.

    Attributes:
        inputs: Received from earlier stages; empty in the first stage.
        outputs: Sent to later stages; empty in the last stage.
        output_gradients: Received from later stages.
        input_gradients: Sent to earlier stages.
    """

    inputs: Receivers
    outputs: Senders
    output_gradients: Receivers
    input_gradients: Senders

    @property
    def receivers(self) -> Iterator[Receiver]:
        """All receiving ends."""
        return (route.end for route in (*self.inputs, *self.output_gradients))

    @property
    def senders(self) -> Iterator[Sender]:
        """All sending ends."""
        return (route.end for route in (*self.outputs, *self.input_gradients))

    @property
    def buffer_bytes(self) -> int:
        """The bytes of the memory of messages."""
        received = sum(receiver.buffer_bytes for receiver in self.receivers)
        return received + sum(sender.buffer_bytes for sender in self.senders)

    def begin(self, learns: bool) -> None:
        """Post a step's first receives."""
        for route in (*self.inputs, *(self.output_gradients if learns else ())):
            route.end.begin()

    def finish(self) -> None:
        """Wait until all sends are complete."""
        for sender in self.senders:
            sender.finish()


def message_tag(
    layout: ModelLayout, routes: StageRoutes, direction: int, directed_route: DirectedRoute
) -> int:
    """Return the tag of the messages of a directed route.

    A rank only sends, or only receives, with each tag. In one round, a rank has at most one stage
    of each direction, and the boundaries before and after a stage differ in parity: two numbers
    are enough for routes to the next stage. In several rounds, the same two ranks may have many
    stage boundaries between them, so that each boundary has its own number. Each route that
    bypasses stages has its own number, too.

    Args:
        layout: The ranks.
        routes: The routes between stages.
        direction: The direction of the pipeline.
        directed_route: The route, and one of its two directions.
    """
    route = directed_route.route
    boundary_number = route.source if layout.rounds > 1 else route.source % 2
    if route.stages_passed:
        first_skip_number = len(layout.stages) if layout.rounds > 1 else 2
        boundary_number = first_skip_number + routes.skips.index(route)
    return 2 * (len(layout.directions) * boundary_number + direction) + directed_route.backward


def message_tags(layout: ModelLayout, routes: StageRoutes) -> tuple[int, ...]:
    """Return the tags of all messages between stages, ascending."""
    directed_routes = [
        DirectedRoute(route, backward) for route, backward in product(routes.routes, (False, True))
    ]
    return tuple(
        sorted(
            {
                message_tag(layout, routes, direction, directed_route)
                for direction, directed_route in product(layout.directions, directed_routes)
            }
        )
    )


def open_stage_io(p2p: P2P, plan: ModelPlan, coordinates: RankCoordinates) -> StageIO:
    """Return the senders and receivers of this rank's stage at its coordinates.

    Args:
        p2p: The transport of messages among all ranks of the layout.
        plan: The model, its layout and its micro-batches.
        coordinates: The coordinates of this rank.
    """
    routes = plan.routes()
    channels = _StageChannels(p2p, plan, coordinates, routes)
    earlier = routes.list_incoming(coordinates.stage)
    later = routes.list_outgoing(coordinates.stage)
    return StageIO(
        inputs=tuple(channels.open_end(Receiver, route, backward=False) for route in earlier),
        outputs=tuple(channels.open_end(Sender, route, backward=False) for route in later),
        output_gradients=tuple(
            channels.open_end(Receiver, route, backward=True) for route in later
        ),
        input_gradients=tuple(channels.open_end(Sender, route, backward=True) for route in earlier),
    )


class _StageChannels:
    """The channels of one stage of a rank."""

    def __init__(
        self, p2p: P2P, plan: ModelPlan, coordinates: RankCoordinates, routes: StageRoutes
    ) -> None:
        self._p2p = p2p
        self._plan = plan
        self._coordinates = coordinates
        self._routes = routes
        self._batch_sizes = tuple(
            batch.size for batch in plan.batches if batch.direction == coordinates.direction
        )

    def open_end(self, end_type: type[End], route: Route, *, backward: bool) -> RouteEnd[End]:
        """Return this rank's end of a route, in one of its two directions."""
        stage = self._coordinates.stage
        routes = self._routes
        stage_tensors = (
            routes.list_outputs(stage) if route.source == stage else routes.list_inputs(stage)
        )
        indices = tuple(stage_tensors.index(tensor_number) for tensor_number in route.tensors)
        return RouteEnd(end_type(self._connect(DirectedRoute(route, backward))), indices)

    def _connect(self, directed_route: DirectedRoute) -> StageChannel:
        plan = self._plan
        layout = plan.layout
        coordinates = self._coordinates
        route = directed_route.route
        flow = self._routes.table.select_flow(route.tensors)

        def make_shards(coordinates: RankCoordinates) -> dict[int, LocalShard]:
            return {
                size: local_shard(layout, coordinates, flow, size)
                for size in set(self._batch_sizes)
            }

        other_stage = route.source if route.target == coordinates.stage else route.target
        other_round = layout.find_round(other_stage)
        own_shards = make_shards(coordinates)
        shards_by_rank = {
            rank: make_shards(layout.locate_rank(rank, coordinates.direction, other_round))
            for rank in layout.list_peer_ranks(coordinates, other_stage)
        }
        peer_shards_by_size = {
            size: {rank: shard_by_size[size] for rank, shard_by_size in shards_by_rank.items()}
            for size in own_shards
        }
        return StageChannel.connect(
            directed_route,
            self._p2p,
            message_tag(layout, self._routes, coordinates.direction, directed_route),
            self._batch_sizes,
            own_shards,
            peer_shards_by_size,
            dtype=plan.dtype,
            device=plan.device,
        )
