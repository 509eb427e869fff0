"""Re-sharding: the parts of a micro-batch that one stage sends to the next.

A rank holds some of the images, and a box of pixels of each map. The intersection of two ranks'
shards is the message between them. So a stage's tiles become those of another grid, whole images,
or shares of images, and gradients return the same way. Every rank computes the intersections from
the layout and the shapes of the model's flows, so that no size is ever asked of another rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch

from spbench_core.layout.micro_batches import MicroBatch
from spbench_core.layout.stages import ModelLayout, RankCoordinates
from spbench_core.layout.tiles import Box, Interval
from spbench_core.models.layers import Flow

Cut = tuple[slice, slice, slice, slice]
"""Slices of a tensor ``images x channels x rows x cols``."""
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
        """The shapes of its tensors, one per map."""
        first, end = self.images
        maps = zip(self.channels, self.boxes, strict=True)
        return tuple((end - first, channels, *box.shape) for channels, box in maps)


@dataclass(frozen=True, slots=True)
class Reshard:
    """The part of a micro-batch in one message between this rank and a ``peer``.

    Attributes:
        peer: The other rank.
        cuts: For each map, the slices of this rank's tensor.
        shapes: For each map, the shape of this part.
    """

    peer: int
    cuts: tuple[Cut, ...]
    shapes: tuple[Shape, ...]

    @property
    def value_count(self) -> int:
        """The number of values in the message."""
        return sum(map(prod, self.shapes))

    def views(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """Return views of flat memory as the parts, one after another."""
        flat_parts = memory[: self.value_count].split([prod(shape) for shape in self.shapes])
        return [
            flat_part.view(shape) for flat_part, shape in zip(flat_parts, self.shapes, strict=True)
        ]


def local_shard(
    layout: ModelLayout, coordinates: RankCoordinates, flow: Flow, images: int
) -> LocalShard:
    """Return a rank's shard of some images of a micro-batch, at its stage's boundary."""
    stage = layout.stages[coordinates.stage]
    return LocalShard(
        MicroBatch((0, images)).member_images(coordinates.member, stage.members),
        tuple(data.channels for data in flow),
        tuple(stage.grid.tile(coordinates.tile, data.height, data.width) for data in flow),
    )


def find_reshards(own_shard: LocalShard, others: Mapping[int, LocalShard]) -> tuple[Reshard, ...]:
    """Return the non-empty parts that this rank shares with others, in their order."""
    possible_reshards = (_reshard(own_shard, peer, other) for peer, other in others.items())
    return tuple(reshard for reshard in possible_reshards if reshard.value_count)


def _reshard(own_shard: LocalShard, peer: int, other: LocalShard) -> Reshard:
    images = max(own_shard.images[0], other.images[0]), min(own_shard.images[1], other.images[1])
    shared_boxes = [
        own_box.intersect(other_box)
        for own_box, other_box in zip(own_shard.boxes, other.boxes, strict=True)
    ]
    image_count = max(0, images[1] - images[0])
    maps = list(zip(own_shard.channels, own_shard.boxes, shared_boxes, strict=True))
    return Reshard(
        peer,
        tuple(
            (
                _make_slice(images, own_shard.images),
                slice(None),
                _make_slice(box.rows, origin.rows),
                _make_slice(box.cols, origin.cols),
            )
            for _, origin, box in maps
        ),
        tuple((image_count, channels, *box.shape) for channels, _, box in maps),
    )


def _make_slice(part: Interval, extent: Interval) -> slice:
    """Return the slice of ``part`` in a tensor of ``extent``, empty for an empty part."""
    first = max(0, part[0] - extent[0])
    return slice(first, max(first, part[1] - extent[0]))
