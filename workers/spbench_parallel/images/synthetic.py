"""Synthetic images: noise, or patterns by class.

Each rank computes only its own pixels.

A pixel is determined by the seed, the replica, the step, the image, its channel, row and column.
"""

from __future__ import annotations

import math

import torch

from spbench_core.layout.tiles import Box, Interval
from spbench_core.models.parts import MapShape
from spbench_parallel.device.host_memory import copy_to_device
from spbench_parallel.images.random_bits import draw_random_bits, hash_parts, make_generator

_SCALE = math.sqrt(3) * 2.0**-31  # scales 32-bit integers to a uniform distribution of variance 1


class SyntheticImages:
    """An endless source of uniform noise (mean 0, variance 1) with random classes.

    Args:
        image: The shape of an image.
        num_classes: The number of classes.
        seed: The seed of all images.
        masked: Whether each pixel has a class, instead of each image.
        dtype: The number format of the pixels; they are computed in fp32.
        device: The device that computes them.

    Attributes:
        count: None, because the images are endless.
        step: The current step.
    """

    count = None

    def __init__(
        self,
        image: MapShape,
        num_classes: int,
        *,
        seed: int,
        masked: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self._image = image
        self._num_classes = num_classes
        self._seed = seed
        self._masked = masked
        self._dtype = dtype
        self._device = torch.device(device)
        self.step = 0

    def set_step(self, step: int) -> None:
        """Set the step of the next images."""
        self.step = step

    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""
        return self.noise(replica, images, box).to(self._dtype)

    def noise(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the noise of a box of images, in fp32."""
        return self._draw_bits("image", replica, images, box).float() * _SCALE

    def targets(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each image, or of each of a box's pixels, in int64."""
        if self._masked:
            return self.masks(replica, images, box)
        return copy_to_device(torch.tensor(self.classes(replica, images)), self._device)

    def classes(self, replica: int, images: Interval) -> list[int]:
        """Return the class of each image."""
        seeds = ((self._seed, replica, self.step, index) for index in range(*images))
        return [hash_parts("class", *seed) % self._num_classes for seed in seeds]

    def masks(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each of a box's pixels, ``images x rows x cols``."""
        bits = self._draw_bits("mask", replica, images, box)[:, 0]
        return bits.bitwise_and_(0x7FFFFFFF).to(torch.int64) % self._num_classes

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _draw_bits(self, kind: str, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return 32 random bits per value of a box: of image channels, or of a mask."""
        channels, height, width = self._image.shape
        shape = (channels if kind == "image" else 1, height, width)
        maps = [(kind, self._seed, replica, self.step, index) for index in range(*images)]
        return draw_random_bits(maps, shape, box, self._device)


WAVE_LENGTHS = (4.0, 12.0)
"""The shortest and the longest wave, in pixels."""
NOISE = 1.5
"""The standard deviation of the noise. That of a wave is 1, averaged over the channels."""


class PatternImages(SyntheticImages):
    """An endless source of images of classes that can be distinguished.

    Each class is a coloured wave under noise. Direction, length and colours of the wave are
    determined by the class number only. Its phase and the noise follow from the image's seed.
    Therefore a model trained on one seed recognises the images of another one.

    The arguments are those of `SyntheticImages`; the seed does not change the classes. With masks,
    a straight line divides an image into two classes.
    """

    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""
        noise = self.noise(replica, images, box)
        for index, pixels in zip(range(*images), noise, strict=True):
            phase_turns = hash_parts("phase", self._seed, replica, self.step, index) / 2.0**63
            pixels.mul_(NOISE).add_(self._draw_waves(replica, index, phase_turns, box))
        return noise.to(self._dtype)

    def masks(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each of a box's pixels, ``images x rows x cols``."""
        labels = [
            torch.where(
                self._make_first_side_mask(replica, image, box),
                *self._draw_class_pair(replica, image),
            )
            for image in range(*images)
        ]
        masks = torch.stack(labels) if labels else torch.empty(0, *box.shape, dtype=torch.int64)
        return masks.to(self._device)

    def _draw_waves(self, replica: int, image: int, phase_turns: float, box: Box) -> torch.Tensor:
        """Return a box of the wave of an image's class, or of each pixel's class."""
        if not self._masked:
            (label,) = self.classes(replica, (image, image + 1))
            return self._draw_wave(label, phase_turns, box)
        first_wave, second_wave = (
            self._draw_wave(label, phase_turns, box)
            for label in self._draw_class_pair(replica, image)
        )
        return torch.where(
            self._make_first_side_mask(replica, image, box).to(self._device),
            first_wave,
            second_wave,
        )

    def _draw_class_pair(self, replica: int, index: int) -> tuple[int, int]:
        """Return the classes on both sides of an image's line."""
        seed = self._seed, replica, self.step, index
        first_class, second_class = (
            hash_parts(side, *seed) % self._num_classes for side in ("one", "other")
        )
        return first_class, second_class

    def _make_first_side_mask(self, replica: int, index: int, box: Box) -> torch.Tensor:
        """Return which pixels of a box are on the first side, in exact integers."""
        generator = make_generator("line", self._seed, replica, self.step, index)
        down, across, row, col = torch.randint(-1000, 1001, (4,), generator=generator).tolist()
        _, height, width = self._image.shape
        row_distances = 2000 * torch.arange(*box.rows) - (row + 1000) * height
        col_distances = 2000 * torch.arange(*box.cols) - (col + 1000) * width
        is_first: torch.Tensor = down * row_distances[:, None] + across * col_distances > 0
        return is_first

    def _draw_wave(self, label: int, phase_turns: float, box: Box) -> torch.Tensor:
        """Return a box of a class's wave, shifted by a share of its length."""
        generator = make_generator("pattern", label)
        direction, relative_length = torch.rand(
            2, generator=generator, dtype=torch.float64
        ).tolist()
        colours = torch.randn(self._image.channels, generator=generator)
        colours *= math.sqrt(2 * len(colours)) / colours.norm()
        pixels_per_wave = WAVE_LENGTHS[0] * (WAVE_LENGTHS[1] / WAVE_LENGTHS[0]) ** relative_length
        down = math.sin(math.pi * direction)
        across = math.cos(math.pi * direction)
        row_angles = _unit_circle(self._image.height, down / pixels_per_wave, phase_turns)[
            :, slice(*box.rows)
        ]
        col_angles = _unit_circle(self._image.width, across / pixels_per_wave, 0.0)[
            :, slice(*box.cols)
        ]
        # cos(a + b) from products only: rounding does not depend on the box.
        waves = row_angles[0, :, None] * col_angles[0] - row_angles[1, :, None] * col_angles[1]
        return (colours[:, None, None] * waves).to(self._device)


def _unit_circle(count: int, turns_per_pixel: float, first_turns: float) -> torch.Tensor:
    """Return cosines and sines of ``count`` angles, ``2 x count``.

    The angles begin at ``first_turns`` and grow by ``turns_per_pixel``, both in turns.
    """
    angles = (torch.arange(count, dtype=torch.float64) * turns_per_pixel + first_turns) * (
        2 * math.pi
    )
    return torch.stack((angles.cos(), angles.sin())).float()
