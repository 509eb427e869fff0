"""Synthetic images: each rank makes its own pixels, and no others.

A pixel follows from the seed, the replica, the step, the image, its channel, row and column. Each
row and each column of an image draws a key; what two keys have in common is mixed as a hash of 32
bits does it ("lowbias32" of C. Wellons' hash prospector). That takes six passes over a tile, on the
device that it is for, where a random generator would have to make the whole image.
"""

from __future__ import annotations

import math

import torch

from spbench_core.layout.tiles import Box, Interval
from spbench_core.models.parts import Map
from spbench_workers.device.host_memory import sent
from spbench_workers.images.seeds import drawn, generator

_FACTORS = (0x7FEB352D, 0x846CA68B - (1 << 32))
"""Both odd; the second as a signed number."""
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
        self._image, self._num_classes, self._seed = image, num_classes, seed
        self._masked = masked
        self._dtype, self._device = dtype, torch.device(device)
        self._step = 0

    def turn_to(self, step: int) -> None:
        """Give the images of a step from now on."""
        self._step = step

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
        return sent(torch.tensor(self.classes(replica, images)), self._device)

    def classes(self, replica: int, images: Interval) -> list[int]:
        """Return the class of each image."""
        words = ((self._seed, replica, self._step, index) for index in range(*images))
        return [drawn("class", *several) % self._num_classes for several in words]

    def masks(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each of a box's pixels, ``images x rows x cols``."""
        bits = self._bits("mask", replica, images, box)[:, 0]
        return bits.bitwise_and_(0x7FFFFFFF).to(torch.int64) % self._num_classes

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def _bits(self, word: str, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return 32 random bits for each value of a box: of an image's channels, or of a mask."""
        channels = self._image.channels if word == "image" else 1
        keys = [self._keys(word, channels, replica, index, box) for index in range(*images)]
        if not keys:
            shape = (0, channels, *box.shape)
            return torch.empty(shape, dtype=torch.int32, device=self._device)
        rows, cols = (sent(torch.stack(one), self._device) for one in zip(*keys, strict=True))
        return _mix(rows.unsqueeze(3) ^ cols.unsqueeze(1).unsqueeze(1))

    def _keys(
        self, word: str, channels: int, replica: int, index: int, box: Box
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys of a box's rows, ``channels x rows``, and of its columns, in int32."""
        source = generator(word, self._seed, replica, self._step, index)
        _, height, width = self._image.shape
        rows, cols = (
            torch.randint(-(1 << 31), 1 << 31, shape, dtype=torch.int32, generator=source)
            for shape in ((channels, height), (width,))
        )
        return rows[:, slice(*box.rows)], cols[slice(*box.cols)]


def _mix(bits: torch.Tensor) -> torch.Tensor:
    """Mix in place; torch's whole numbers wrap, as it needs."""
    for factor in _FACTORS:
        # The mask: zeros are to come in from the left, where torch repeats the sign.
        bits.bitwise_xor_((bits >> 16).bitwise_and_(0xFFFF)).mul_(factor)
    return bits
