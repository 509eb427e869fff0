"""Micro-batches: the parts of a step's images that go through a pipeline.

No image is dropped: if a number does not divide evenly, the first parts have one more image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from spbench_core.layout.tiles import Interval
from spbench_core.number_text import format_quantity


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Images that go through the stages together.

    Attributes:
        images: The half-open interval of its images, counted from a replica's first in the step.
        direction: The pipeline that it goes through; 1 only in mirrored layouts.
        pair: The index of its pair among the ``times`` pairs of a mirrored step; otherwise 0.
    """

    images: Interval
    direction: int = 0
    pair: int = 0

    @property
    def size(self) -> int:
        """The number of images."""
        return self.images[1] - self.images[0]

    def member_images(self, member: int, members: int) -> Interval:
        """Return the images of one of the members that share the micro-batch."""
        return _split_interval(self.images, members)[member]


def split_evenly(count: int, parts: int) -> tuple[int, ...]:
    """Split ``count`` in nearly equal parts, the larger first: 5 in 2 is 3, 2."""
    size, larger_parts = divmod(count, parts)
    return (size + 1,) * larger_parts + (size,) * (parts - larger_parts)


def split_batch(
    batch_size: int, parts: int, *, mirrored: bool = False, times: int = 1
) -> tuple[MicroBatch, ...]:
    """Return a replica's micro-batches, in the order of the sequential model.

    Without mirrored pipelines ``batch_size`` images are split in ``parts``. With them a step has
    ``times`` pairs of ``batch_size`` images each. The first half of a pair goes through direction
    0, the other half through direction 1, and each half is split in ``parts``.

    Raises:
        ValueError: There are fewer images than micro-batches.
    """
    check_batch_size(batch_size, parts, mirrored=mirrored)
    if not mirrored:
        return tuple(MicroBatch(images) for images in _split_interval((0, batch_size), parts))
    return tuple(_split_pairs(batch_size, parts, times))


def check_batch_size(
    batch_size: int, parts: int, *, mirrored: bool = False, members: int = 1
) -> None:
    """Reject a batch that leaves a rank of the pipeline without an image.

    Raises:
        ValueError: A rank would have no image; the message has the least batch_size.
    """
    minimum = parts * members * (2 if mirrored else 1)
    if batch_size >= minimum:
        return
    share_phrases = [format_quantity(parts, "micro-batch", "micro-batches")]
    if mirrored:
        share_phrases.append("in each of two directions")
    if members > 1:
        share_phrases.append(f"shared by {members} ranks")
    raise ValueError(
        f"{batch_size} image{'s are' if batch_size > 1 else ' is'} too few for "
        f"{' '.join(share_phrases)}: take a batch_size of at least {minimum}"
    )


def _split_pairs(batch_size: int, parts: int, times: int) -> Iterator[MicroBatch]:
    for pair in range(times):
        halves = _split_interval((pair * batch_size, (pair + 1) * batch_size), 2)
        for direction, half in enumerate(halves):
            for images in _split_interval(half, parts):
                yield MicroBatch(images, direction, pair)


def _split_interval(images: Interval, parts: int) -> list[Interval]:
    first, last = images
    return list(pairwise(accumulate(split_evenly(last - first, parts), initial=first)))
