"""Re-sharding: the parts of a micro-batch that go from ranks of one stage to ranks of the next.

A rank holds some of the images, and a box of pixels of each map. The part that two ranks both hold
goes between them: so a stage's tiles become those of another grid, whole images or shares of them,
and gradients go back the same way. Every rank computes this from the layout and the shapes of the
model's flows, so that no size is ever asked of another rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import ModelLayout, Place
from spbench_core.layout.tiles import Box, Interval
from spbench_core.models.layers import Flow

Cut = tuple[slice, slice, slice, slice]
"""A part of a tensor ``images x channels x rows x cols``."""
Shape = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class LocalShard:
    """The shard of a micro-batch that a rank holds.

    Attributes:
        images: Its images, half-open, counted from the micro-batch's first.
        channels: The number of channels of each map.
        boxes: The pixels of each map.
    """

    images: Interval
    channels: tuple[int, ...]
    boxes: tuple[Box, ...]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of its tensors, one a map."""
        first, last = self.images
        maps = zip(self.channels, self.boxes, strict=True)
        return tuple((last - first, channels, *box.shape) for channels, box in maps)


@dataclass(frozen=True, slots=True)
class Reshard:
    """The part of a micro-batch that goes between this rank and a ``peer``, in one message.

    Attributes:
        peer: The other rank.
        cuts: For each map, the slices of this rank's tensor.
        shapes: For each map, the shape of this part.
    """

    peer: int
    cuts: tuple[Cut, ...]
    shapes: tuple[Shape, ...]

    @property
    def values(self) -> int:
        """Numbers in the message."""
        return sum(map(prod, self.shapes))

    def views(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """Return views of flat memory as the parts, one after the other."""
        parts = memory[: self.values].split([prod(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def local_shard(layout: ModelLayout, place: Place, flow: Flow, images: int) -> LocalShard:
    """Return a rank's shard of a micro-batch of so many images, before or after its stage."""
    stage = layout.stages[place.stage]
    return LocalShard(
        MicroBatch((0, images)).share(place.member, stage.members),
        tuple(data.channels for data in flow),
        tuple(stage.grid.tile(place.tile, data.height, data.width) for data in flow),
    )


def reshards(mine: LocalShard, others: Mapping[int, LocalShard]) -> tuple[Reshard, ...]:
    """Return the parts that this rank has in common with others, in their order; none if empty."""
    found = (_reshard(mine, peer, other) for peer, other in others.items())
    return tuple(reshard for reshard in found if reshard.values)


def _reshard(mine: LocalShard, peer: int, other: LocalShard) -> Reshard:
    images = max(mine.images[0], other.images[0]), min(mine.images[1], other.images[1])
    boxes = [one.intersect(two) for one, two in zip(mine.boxes, other.boxes, strict=True)]
    count = max(0, images[1] - images[0])
    maps = list(zip(mine.channels, mine.boxes, boxes, strict=True))
    return Reshard(
        peer,
        tuple(
            (
                _slice(images, mine.images),
                slice(None),
                _slice(box.rows, origin.rows),
                _slice(box.cols, origin.cols),
            )
            for _, origin, box in maps
        ),
        tuple((count, channels, *box.shape) for channels, _, box in maps),
    )


def _slice(part: Interval, whole: Interval) -> slice:
    """Return the slice of a part in a tensor of the whole; that of an empty part is empty."""
    first = max(0, part[0] - whole[0])
    return slice(first, max(first, part[1] - whole[0]))
