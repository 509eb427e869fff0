"""Micro-batches: a step's images cut into parts for the pipeline, and these into shares.

No image is dropped: where a number does not divide, the first parts have one image more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from spbench_core.layout.tiles import Interval
from spbench_core.quantities import format_quantity


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Images that go through the stages together.

    Attributes:
        images: Half-open, counted from a replica's first image of the step.
        direction: The pipeline that it runs through; 1 only where layouts are mirrored.
        pair: The pair of a mirrored step's ``times`` pairs that it belongs to; 0 elsewhere.
    """

    images: Interval
    direction: int = 0
    pair: int = 0

    @property
    def size(self) -> int:
        """Number of images."""
        return self.images[1] - self.images[0]

    def member_images(self, member: int, members: int) -> Interval:
        """Return the images of one of the ranks that share the micro-batch."""
        return _cut(self.images, members)[member]


def split_evenly(count: int, parts: int) -> tuple[int, ...]:
    """Return ``count`` in parts that differ by at most one, the larger first: 5 in 2 is 3, 2."""
    each, more = divmod(count, parts)
    return (each + 1,) * more + (each,) * (parts - more)


def split_batch(
    batch_size: int, parts: int, *, mirrored: bool = False, times: int = 1
) -> tuple[MicroBatch, ...]:
    """Return the micro-batches of one replica's step, in the order of the sequential model.

    Without mirrored pipelines ``batch_size`` images are cut in ``parts``. With them a step has
    ``times`` pairs of ``batch_size`` images each: the first half of a pair goes through
    direction 0, the other through direction 1, and each half is cut in ``parts``.

    Raises:
        ValueError: There are fewer images than micro-batches.
    """
    check_batch_size(batch_size, parts, mirrored=mirrored)
    if not mirrored:
        return tuple(MicroBatch(images) for images in _cut((0, batch_size), parts))
    return tuple(_pairs(batch_size, parts, times))


def check_batch_size(
    batch_size: int, parts: int, *, mirrored: bool = False, members: int = 1
) -> None:
    """Refuse a batch that leaves a rank of the pipeline without an image.

    Raises:
        ValueError: A rank would have no image; the text names the least batch_size.
    """
    least = parts * members * (2 if mirrored else 1)
    if batch_size < least:
        of = [format_quantity(parts, "micro-batch", "micro-batches")]
        of += ["in each of two directions"] if mirrored else []
        of += [f"shared by {members} ranks"] if members > 1 else []
        raise ValueError(
            f"{batch_size} image{'s are' if batch_size > 1 else ' is'} too few for "
            f"{' '.join(of)}: take a batch_size of at least {least}"
        )


def _pairs(batch_size: int, parts: int, times: int) -> Iterator[MicroBatch]:
    for pair in range(times):
        halves = _cut((pair * batch_size, (pair + 1) * batch_size), 2)
        for direction, half in enumerate(halves):
            for images in _cut(half, parts):
                yield MicroBatch(images, direction, pair)


def _cut(images: Interval, parts: int) -> list[Interval]:
    first, last = images
    return list(pairwise(accumulate(split_evenly(last - first, parts), initial=first)))
