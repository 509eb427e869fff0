"""Channels of messages between stages: one message for each micro-batch and pair of ranks.

A message holds the tensors of one route. Messages of one kind between two stages follow each other
in the order of the micro-batches, which sender and receiver know. Two receives are posted ahead,
and a send is waited for when the second after it is to go, as `spbench_core.schedule.step` asks, so
that ranks cannot deadlock.

A route past other stages has more sends under way: its sender is as many micro-batches ahead as the
stages between let it be. In the order of all tasks that `spbench_core.schedule.step` promises, one
on micro-batch `i` comes after the next stage has begun `i - 2`, and so has sent `i - 3`: over `k`
stages, after the last one has begun `i - 3k + 1`. With so many sends left unwaited for, the order
holds for the route as well.

Memory is set up once, for the largest micro-batch. Data travel as bytes, whatever the number
format; those of a GPU through the host, except over NCCL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from spbench_core.models.routes import Route
from spbench_core.schedule.list_scheduling import PENDING
from spbench_parallel.p2p import P2P, Message, Pending
from spbench_parallel.pipeline.reshard import LocalShard, Reshard, Shape, reshards


@dataclass(frozen=True, slots=True)
class DirectedRoute:
    """A route in one of its two directions.

    Attributes:
        route: The tensors, and the stages at its ends.
        backward: Whether it is that of gradients, which go back to the route's source.
    """

    route: Route
    backward: bool

    def __str__(self) -> str:
        ends = self.route.source, self.route.target
        what = "gradients" if self.backward else "outputs"
        first, last = reversed(ends) if self.backward else ends
        return f"{what} from stage {first} to {last}"

    def sends(self, messages: int) -> int:
        """Return how many of a step's messages may be left unwaited for."""
        return max(PENDING, min(3 * self.route.passed + PENDING, messages))


@dataclass(frozen=True, slots=True)
class StageChannel:
    """A channel of messages that follow each other, as one rank sees it.

    Attributes:
        way: The tensors that it carries, and where.
        p2p: The transport of the messages.
        tag: The tag of all messages of this channel, and of no others that start or end here.
        sizes: Images of each micro-batch of a step, in the order of the messages.
        reshards: By number of images, the parts that go between this rank and its peers.
        shapes: By number of images, the shapes of this rank's tensors.
        dtype: The number format.
        device: The device of the tensors.
    """

    way: DirectedRoute
    p2p: P2P
    tag: int
    sizes: tuple[int, ...]
    reshards: dict[int, tuple[Reshard, ...]]
    shapes: dict[int, tuple[Shape, ...]]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def between(
        cls,
        way: DirectedRoute,
        p2p: P2P,
        tag: int,
        sizes: Sequence[int],
        mine: Mapping[int, LocalShard],
        peers: Mapping[int, Mapping[int, LocalShard]],
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> StageChannel:
        """Return the channel between this rank and some ranks of another stage.

        Args:
            way: The tensors that it carries, and where.
            p2p: The transport of its messages.
            tag: The tag of its messages.
            sizes: Images of each micro-batch of a step.
            mine: By number of images, this rank's shard.
            peers: By number of images, and by rank, the shards of others of the same maps.
            dtype: The number format.
            device: The device of the tensors.
        """
        return cls(
            way,
            p2p,
            tag,
            tuple(sizes),
            {size: reshards(mine[size], peers[size]) for size in mine},
            {size: mine[size].shapes for size in mine},
            dtype,
            device,
        )

    def slots(self, count: int) -> list[_Slot]:
        """Return memory for so many messages under way."""
        most: dict[int, int] = {}
        for several in self.reshards.values():
            for reshard in several:
                most[reshard.peer] = max(most.get(reshard.peer, 0), reshard.values)
        on_device = self.p2p.on_device
        place = self.device if on_device else torch.device("cpu")
        pinned = self.device.type == "cuda" and not on_device
        return [
            _Slot(
                {
                    peer: torch.empty(values, dtype=self.dtype, device=place, pin_memory=pinned)
                    for peer, values in most.items()
                }
            )
            for _ in range(count)
        ]


@dataclass(slots=True)
class _Slot:
    """Memory of one message to or from each peer, and the pending operations on it."""

    memory: dict[int, torch.Tensor]
    pending: Sequence[Pending] = ()

    @property
    def bytes(self) -> int:
        """The bytes of the memory."""
        return sum(part.nbytes for part in self.memory.values())

    def message(self, reshard: Reshard) -> Message:
        """Return the memory of a reshard as bytes, and its peer."""
        return self.memory[reshard.peer][: reshard.values].view(torch.uint8), reshard.peer

    def wait(self) -> None:
        for one in self.pending:
            one.wait()
        self.pending = ()


class Sender:
    """The sending end of a channel.

    Attributes:
        bytes: Bytes sent since the start.
        messages: Messages sent since the start.
    """

    def __init__(self, channel: StageChannel) -> None:
        self._channel = channel
        self._slots = channel.slots(channel.way.sends(len(channel.sizes)))
        self._turn = 0
        self.bytes = self.messages = 0

    @property
    def way(self) -> DirectedRoute:
        """The tensors that it carries, and where."""
        return self._channel.way

    @property
    def buffer_bytes(self) -> int:
        """The bytes of the memory of messages."""
        return sum(slot.bytes for slot in self._slots)

    def wait(self) -> None:
        """Wait until there is memory for the next message: until an earlier one has gone."""
        self._slots[self._turn % len(self._slots)].wait()

    def send(self, tensors: Sequence[torch.Tensor]) -> None:
        """Send a micro-batch's tensors, of this rank's shapes; afterwards they may change."""
        channel = self._channel
        slot = self._slots[self._turn % len(self._slots)]
        size = channel.sizes[self._turn % len(channel.sizes)]
        slot.wait()
        for reshard in channel.reshards[size]:
            views = reshard.views(slot.memory[reshard.peer])
            for part, tensor, cut in zip(views, tensors, reshard.cuts, strict=True):
                part.copy_(tensor[cut])
        messages = [slot.message(reshard) for reshard in channel.reshards[size]]
        slot.pending = channel.p2p.send(messages, channel.tag)
        self.bytes += sum(vector.numel() for vector, _ in messages)
        self.messages += len(messages)
        self._turn += 1

    def finish(self) -> None:
        """Wait until all messages have gone."""
        for slot in self._slots:
            slot.wait()


class Receiver:
    """The receiving end of a channel."""

    def __init__(self, channel: StageChannel) -> None:
        self._channel = channel
        self._slots = channel.slots(PENDING)
        self._posted = self._taken = 0

    @property
    def way(self) -> DirectedRoute:
        """The tensors that it carries, and where."""
        return self._channel.way

    @property
    def buffer_bytes(self) -> int:
        """The bytes of the memory of messages."""
        return sum(slot.bytes for slot in self._slots)

    def begin(self) -> None:
        """Post a step's first receives."""
        self._posted = self._taken = 0
        for _ in range(PENDING):
            self._post()

    def wait(self) -> None:
        """Wait for the next micro-batch's tensors."""
        self._slots[self._taken % PENDING].wait()

    def take(self) -> tuple[torch.Tensor, ...]:
        """Return the next micro-batch's tensors, in memory of their own."""
        channel = self._channel
        slot = self._slots[self._taken % PENDING]
        size = channel.sizes[self._taken]
        slot.wait()
        tensors = tuple(
            torch.empty(shape, dtype=channel.dtype, device=channel.device)
            for shape in channel.shapes[size]
        )
        for reshard in channel.reshards[size]:
            parts = zip(
                reshard.views(slot.memory[reshard.peer]), tensors, reshard.cuts, strict=True
            )
            for part, tensor, cut in parts:
                tensor[cut].copy_(part)
        self._taken += 1
        self._post()
        return tensors

    def _post(self) -> None:
        channel = self._channel
        if self._posted == len(channel.sizes):
            return
        slot = self._slots[self._posted % PENDING]
        reshards_of = channel.reshards[channel.sizes[self._posted]]
        slot.pending = channel.p2p.receive(list(map(slot.message, reshards_of)), channel.tag)
        self._posted += 1
