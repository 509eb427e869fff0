"""Channels between stages: one message per micro-batch and pair of ranks.

A message holds the tensors of one route. Messages of one kind between two stages follow each other
in the order of the micro-batches, which sender and receiver know. Two receives are posted ahead,
and a send is completed before the second one after it starts. `spbench_core.schedule.step` requires
this, so that ranks cannot deadlock.

A route that bypasses stages has more sends in flight: its sender is as many micro-batches ahead as
the stages between allow. In the order of all tasks that `spbench_core.schedule.step` guarantees, a
task on micro-batch `i` comes after the next stage has begun `i - 2`, and so has sent `i - 3`. Over
`k` stages, it comes after the last one has begun `i - 3k + 1`. With that many sends in flight, the
order also holds for the route.

Memory is allocated once, for the largest micro-batch. Data travel as bytes in any number format.
Data of a GPU go through the host, except over NCCL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from spbench_core.models.routes import Route
from spbench_core.schedule.list_scheduling import MAX_PENDING_SENDS
from spbench_parallel.p2p import P2P, Message, Pending
from spbench_parallel.pipeline.reshard import LocalShard, Reshard, Shape, find_reshards


@dataclass(frozen=True, slots=True)
class DirectedRoute:
    """A route in one of its two directions.

    Attributes:
        route: The tensors, and the stages at its ends.
        backward: Whether it carries gradients, which go back to the route's source.
    """

    route: Route
    backward: bool

    def __str__(self) -> str:
        ends = self.route.source, self.route.target
        content = "gradients" if self.backward else "outputs"
        first, last = reversed(ends) if self.backward else ends
        return f"{content} from stage {first} to {last}"

    def max_pending_sends(self, messages: int) -> int:
        """Return how many of a step's messages may be in flight at once."""
        return max(
            MAX_PENDING_SENDS, min(3 * self.route.stages_passed + MAX_PENDING_SENDS, messages)
        )


@dataclass(frozen=True, slots=True)
class StageChannel:
    """A channel of consecutive messages, from the view of one rank.

    Attributes:
        directed_route: The tensors that it carries, and their stages.
        p2p: The transport of the messages.
        tag: The tag of all messages of this channel, and of no others that start or end here.
        sizes: Images of each micro-batch of a step, in the order of the messages.
        reshards: By number of images, the parts that this rank and its peers exchange.
        shapes: By number of images, the shapes of this rank's tensors.
        dtype: The number format.
        device: The device of the tensors.
    """

    directed_route: DirectedRoute
    p2p: P2P
    tag: int
    sizes: tuple[int, ...]
    reshards: dict[int, tuple[Reshard, ...]]
    shapes: dict[int, tuple[Shape, ...]]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def connect(
        cls,
        directed_route: DirectedRoute,
        p2p: P2P,
        tag: int,
        sizes: Sequence[int],
        own_shards: Mapping[int, LocalShard],
        peers: Mapping[int, Mapping[int, LocalShard]],
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> StageChannel:
        """Return the channel between this rank and some ranks of another stage.

        Args:
            directed_route: The tensors that it carries, and their stages.
            p2p: The transport of its messages.
            tag: The tag of its messages.
            sizes: Images of each micro-batch of a step.
            own_shards: By number of images, this rank's shard.
            peers: By number of images and by rank, the other ranks' shards of the same maps.
            dtype: The number format.
            device: The device of the tensors.
        """
        return cls(
            directed_route,
            p2p,
            tag,
            tuple(sizes),
            {size: find_reshards(own_shards[size], peers[size]) for size in own_shards},
            {size: own_shards[size].shapes for size in own_shards},
            dtype,
            device,
        )

    def allocate_slots(self, count: int) -> list[_Slot]:
        """Return memory for ``count`` messages in flight."""
        most_values_by_peer: dict[int, int] = {}
        for size_reshards in self.reshards.values():
            for reshard in size_reshards:
                most_values_by_peer[reshard.peer] = max(
                    most_values_by_peer.get(reshard.peer, 0), reshard.value_count
                )
        on_device = self.p2p.on_device
        device = self.device if on_device else torch.device("cpu")
        pinned = self.device.type == "cuda" and not on_device
        return [
            _Slot(
                {
                    peer: torch.empty(
                        value_count, dtype=self.dtype, device=device, pin_memory=pinned
                    )
                    for peer, value_count in most_values_by_peer.items()
                }
            )
            for _ in range(count)
        ]


@dataclass(slots=True)
class _Slot:
    """Memory of one message to or from each peer, and the pending operations on it."""

    memory_by_peer: dict[int, torch.Tensor]
    pending: Sequence[Pending] = ()

    @property
    def bytes(self) -> int:
        """The bytes of the memory."""
        return sum(part.nbytes for part in self.memory_by_peer.values())

    def message(self, reshard: Reshard) -> Message:
        """Return the memory of a reshard as bytes, and its peer."""
        return self.memory_by_peer[reshard.peer][: reshard.value_count].view(
            torch.uint8
        ), reshard.peer

    def wait(self) -> None:
        for operation in self.pending:
            operation.wait()
        self.pending = ()


class Sender:
    """The sending end of a channel.

    Attributes:
        bytes: Bytes sent since the start.
        messages: Messages sent since the start.
    """

    def __init__(self, channel: StageChannel) -> None:
        self._channel = channel
        self._slots = channel.allocate_slots(
            channel.directed_route.max_pending_sends(len(channel.sizes))
        )
        self._sent_count = 0
        self.bytes = self.messages = 0

    @property
    def directed_route(self) -> DirectedRoute:
        """The tensors that it carries, and their stages."""
        return self._channel.directed_route

    @property
    def buffer_bytes(self) -> int:
        """The bytes of the memory of messages."""
        return sum(slot.bytes for slot in self._slots)

    def wait(self) -> None:
        """Wait until the memory of the next message is free.

        An earlier send may still use it.
        """
        self._slots[self._sent_count % len(self._slots)].wait()

    def send(self, tensors: Sequence[torch.Tensor]) -> None:
        """Send a micro-batch's tensors of this rank's shapes.

        The tensors may change afterwards.
        """
        channel = self._channel
        slot = self._slots[self._sent_count % len(self._slots)]
        image_count = channel.sizes[self._sent_count % len(channel.sizes)]
        slot.wait()
        for reshard in channel.reshards[image_count]:
            views = reshard.views(slot.memory_by_peer[reshard.peer])
            for part, tensor, cut in zip(views, tensors, reshard.cuts, strict=True):
                part.copy_(tensor[cut])
        messages = [slot.message(reshard) for reshard in channel.reshards[image_count]]
        slot.pending = channel.p2p.send(messages, channel.tag)
        self.bytes += sum(byte_vector.numel() for byte_vector, _ in messages)
        self.messages += len(messages)
        self._sent_count += 1

    def finish(self) -> None:
        """Wait until all sends are complete."""
        for slot in self._slots:
            slot.wait()


class Receiver:
    """The receiving end of a channel."""

    def __init__(self, channel: StageChannel) -> None:
        self._channel = channel
        self._slots = channel.allocate_slots(MAX_PENDING_SENDS)
        self._posted_count = self._taken_count = 0

    @property
    def directed_route(self) -> DirectedRoute:
        """The tensors that it carries, and their stages."""
        return self._channel.directed_route

    @property
    def buffer_bytes(self) -> int:
        """The bytes of the memory of messages."""
        return sum(slot.bytes for slot in self._slots)

    def begin(self) -> None:
        """Post a step's first receives."""
        self._posted_count = self._taken_count = 0
        for _ in range(MAX_PENDING_SENDS):
            self._post()

    def wait(self) -> None:
        """Wait for the next micro-batch's tensors."""
        self._slots[self._taken_count % MAX_PENDING_SENDS].wait()

    def take(self) -> tuple[torch.Tensor, ...]:
        """Return the next micro-batch's tensors, and post the next receive.

        The tensors are in newly allocated memory.
        """
        channel = self._channel
        slot = self._slots[self._taken_count % MAX_PENDING_SENDS]
        image_count = channel.sizes[self._taken_count]
        slot.wait()
        tensors = tuple(
            torch.empty(shape, dtype=channel.dtype, device=channel.device)
            for shape in channel.shapes[image_count]
        )
        for reshard in channel.reshards[image_count]:
            parts = zip(
                reshard.views(slot.memory_by_peer[reshard.peer]), tensors, reshard.cuts, strict=True
            )
            for part, tensor, cut in parts:
                tensor[cut].copy_(part)
        self._taken_count += 1
        self._post()
        return tensors

    def _post(self) -> None:
        channel = self._channel
        if self._posted_count == len(channel.sizes):
            return
        slot = self._slots[self._posted_count % MAX_PENDING_SENDS]
        size_reshards = channel.reshards[channel.sizes[self._posted_count]]
        slot.pending = channel.p2p.receive(list(map(slot.message, size_reshards)), channel.tag)
        self._posted_count += 1
