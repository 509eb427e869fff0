"""Synthetic images that can be told apart: a wave of colours for each class, under noise.

A class has its own direction, length and colours of a wave, which follow from its number alone; an
image draws the wave's phase, and the noise, from its seed. So a model that has learnt from images
of one seed knows those of another, which it has never seen.
"""

from __future__ import annotations

import math

import torch

from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.images.seeds import hash_words, make_generator
from spbench_parallel.images.synthetic import SyntheticImages

LENGTHS = (4.0, 12.0)
"""The shortest and the longest wave, in pixels."""
NOISE = 1.5
"""The noise' standard deviation; that of a wave is 1 in the mean over the channels."""


class PatternImages(SyntheticImages):
    """An endless source of images of classes that can be told apart.

    The arguments are those of `SyntheticImages`; the seed is that of all images, but not of the
    classes. Where pixels have classes, a straight line parts an image, with one on each side.
    """

    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""
        noise = self.noise(replica, images, box)
        for index, pixels in zip(range(*images), noise, strict=True):
            turns = hash_words("phase", self._seed, replica, self.step, index) / 2.0**63
            pixels.mul_(NOISE).add_(self._waves(replica, index, turns, box))
        return noise.to(self._dtype)

    def masks(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each of a box's pixels, ``images x rows x cols``."""
        found = [
            torch.where(self._beyond(replica, index, box), *self._pair(replica, index))
            for index in range(*images)
        ]
        masks = torch.stack(found) if found else torch.empty(0, *box.shape, dtype=torch.int64)
        return masks.to(self._device)

    def _waves(self, replica: int, index: int, turns: float, box: Box) -> torch.Tensor:
        """Return a box of the wave of an image's class, or of each pixel's."""
        if not self._masked:
            (label,) = self.classes(replica, (index, index + 1))
            return self._wave(label, turns, box)
        one, other = (self._wave(label, turns, box) for label in self._pair(replica, index))
        return torch.where(self._beyond(replica, index, box).to(self._device), one, other)

    def _pair(self, replica: int, index: int) -> tuple[int, int]:
        """Return the classes on both sides of an image's line."""
        words = self._seed, replica, self.step, index
        first, second = (hash_words(word, *words) % self._num_classes for word in ("one", "other"))
        return first, second

    def _beyond(self, replica: int, index: int, box: Box) -> torch.Tensor:
        """Return which of a box's pixels are on the first side, in whole numbers."""
        source = make_generator("line", self._seed, replica, self.step, index)
        down, across, row, col = torch.randint(-1000, 1001, (4,), generator=source).tolist()
        _, height, width = self._image.shape
        rows = 2000 * torch.arange(*box.rows) - (row + 1000) * height
        cols = 2000 * torch.arange(*box.cols) - (col + 1000) * width
        beyond: torch.Tensor = down * rows[:, None] + across * cols > 0
        return beyond

    def _wave(self, label: int, turns: float, box: Box) -> torch.Tensor:
        """Return a box of a class' wave, begun at a share of its length, on the device."""
        source = make_generator("pattern", label)
        direction, length = torch.rand(2, generator=source, dtype=torch.float64).tolist()
        colours = torch.randn(self._image.channels, generator=source)
        colours *= math.sqrt(2 * len(colours)) / colours.norm()
        pixels = LENGTHS[0] * (LENGTHS[1] / LENGTHS[0]) ** length
        down = math.sin(math.pi * direction)
        across = math.cos(math.pi * direction)
        rows = _circle(self._image.height, down / pixels, turns)[:, slice(*box.rows)]
        cols = _circle(self._image.width, across / pixels, 0.0)[:, slice(*box.cols)]
        # The cosine of a sum, of products alone: they are the same whatever the box.
        waves = rows[0, :, None] * cols[0] - rows[1, :, None] * cols[1]
        return (colours[:, None, None] * waves).to(self._device)


def _circle(count: int, step: float, start: float) -> torch.Tensor:
    """Return cosines and sines of ``count`` angles, in turns from ``start``, ``2 x count``."""
    angles = (torch.arange(count, dtype=torch.float64) * step + start) * (2 * math.pi)
    return torch.stack((angles.cos(), angles.sin())).float()
