"""Synthetic images: each rank makes its own pixels, and no others.

A pixel follows from the seed, the replica, the step, the image, its channel, row and column.
"""

from __future__ import annotations

import math

import torch

from spbench_core.layout.tiles import Box, Interval
from spbench_core.models.parts import Map
from spbench_parallel.device.host_memory import copy_to_device
from spbench_parallel.images.position_bits import position_bits
from spbench_parallel.images.seeds import hash_words

_SPREAD = math.sqrt(3) * 2.0**-31
"""Makes whole numbers of 32 bits uniform with a variance of 1."""


class SyntheticImages:
    """An endless source of images of uniform noise, of mean 0 and variance 1, with random classes.

    Args:
        image: The shape of an image.
        num_classes: The number of classes.
        seed: The seed of all images.
        masked: Whether each pixel has a class, not each image.
        dtype: The number format of the pixels, which are computed in fp32, and then converted.
        device: The device that makes them.

    Attributes:
        count: None, as the images are endless.
        step: The step whose images it gives.
    """

    count = None

    def __init__(
        self,
        image: Map,
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
        """Give the images of a step from now on."""
        self.step = step

    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""
        return self.noise(replica, images, box).to(self._dtype)

    def noise(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the noise of such a box, in fp32."""
        return self._bits("image", replica, images, box).float() * _SPREAD

    def targets(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each image, or of each of a box's pixels, in int64."""
        if self._masked:
            return self.masks(replica, images, box)
        return copy_to_device(torch.tensor(self.classes(replica, images)), self._device)

    def classes(self, replica: int, images: Interval) -> list[int]:
        """Return the class of each image."""
        words = ((self._seed, replica, self.step, index) for index in range(*images))
        return [hash_words("class", *several) % self._num_classes for several in words]

    def masks(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each of a box's pixels, ``images x rows x cols``."""
        bits = self._bits("mask", replica, images, box)[:, 0]
        return bits.bitwise_and_(0x7FFFFFFF).to(torch.int64) % self._num_classes

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def _bits(self, word: str, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return 32 random bits for each value of a box: of an image's channels, or of a mask."""
        channels, height, width = self._image.shape
        shape = (channels if word == "image" else 1, height, width)
        maps = [(word, self._seed, replica, self.step, index) for index in range(*images)]
        return position_bits(maps, shape, box, self._device)
