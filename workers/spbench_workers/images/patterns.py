"""Synthetic images that can be told apart: a wave of colours for each class, under noise.

A class has its own direction, length and colours of a wave, which follow from its number alone; an
image draws the wave's phase, and the noise, from its seed. So a model that has learnt from images
of one seed knows those of another, which it has never seen.
"""

from __future__ import annotations

import math

import torch

from spbench_core.layout.tiles import Box, Interval
from spbench_workers.images.seeds import drawn, generator
from spbench_workers.images.synthetic import SyntheticImages

LENGTHS = (4.0, 12.0)
"""The shortest and the longest wave, in pixels."""
NOISE = 1.5
"""The noise' standard deviation; that of a wave is 1 in the mean over the channels."""


class PatternImages(SyntheticImages):
    """An endless source of images of classes that can be told apart.

    The arguments are those of `SyntheticImages`; the seed is that of all images, but not of the
    classes.
    """

    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""
        noise = self.noise(replica, images, box)
        labels = self.classes(replica, images).tolist()
        for index, label, pixels in zip(range(*images), labels, noise, strict=True):
            turns = drawn("phase", self._seed, replica, self._step, index) / 2.0**63
            pixels.mul_(NOISE).add_(self._wave(label, turns, box))
        return noise.to(self._dtype)

    def _wave(self, label: int, turns: float, box: Box) -> torch.Tensor:
        """Return a box of a class' wave, begun at a share of its length, on the device."""
        source = generator("pattern", label)
        direction, length = torch.rand(2, generator=source, dtype=torch.float64).tolist()
        colours = torch.randn(self._image.channels, generator=source)
        colours *= math.sqrt(2 * len(colours)) / colours.norm()
        pixels = LENGTHS[0] * (LENGTHS[1] / LENGTHS[0]) ** length
        down, across = math.sin(math.pi * direction), math.cos(math.pi * direction)
        rows = _circle(self._image.height, down / pixels, turns)[:, slice(*box.rows)]
        cols = _circle(self._image.width, across / pixels, 0.0)[:, slice(*box.cols)]
        # The cosine of a sum, of products alone: they are the same whatever the box.
        waves = rows[0, :, None] * cols[0] - rows[1, :, None] * cols[1]
        return (colours[:, None, None] * waves).to(self._device)


def _circle(count: int, step: float, start: float) -> torch.Tensor:
    """Return cosines and sines of ``count`` angles, in turns from ``start``, ``2 x count``."""
    angles = (torch.arange(count, dtype=torch.float64) * step + start) * (2 * math.pi)
    return torch.stack((angles.cos(), angles.sin())).float()
