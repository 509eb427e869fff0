"""Images of a data set on disk, decoded ahead of the step that needs them.

Threads of the rank decode in the background: Pillow and numpy work without Python's lock, a crop
needs no copy from process to process, and a process that uses MPI must not be forked.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch

from spbench_core.layout.tiles import Box, Interval
from spbench_workers.device.host_memory import sent
from spbench_workers.images.resizing import Pixels
from spbench_workers.images.shuffle import Shuffle

CHANNELS = 3
"""Red, green, blue."""
_Key = tuple[int, int, Box]
"""A step, an image's number in the data set, and the box of the image."""


class DataSet(Protocol):
    """Images by number, each with its class, or with that of each pixel."""

    def __len__(self) -> int: ...

    def crop(self, number: int, box: Box) -> Pixels:
        """Return a box, not empty, of an image in the model's size, in fp32 from -1 to 1.

        Several threads may call it at once.

        Raises:
            CannotRunError: The image cannot be read.
        """

    def target(self, number: int, box: Box) -> int | Pixels:
        """Return the class of an image, or of each of a box's pixels, ``rows x cols``.

        Raises:
            CannotRunError: They cannot be read, or there are more than the model has.
        """


class StoredImages:
    """A source of the images of a data set on disk, step by step.

    Args:
        data: The data set.
        shuffle: The order of the images.
        num_workers: Threads that prepare the next step's images while a step's are worked on; with
            none they are read when they are asked for.
        dtype: The number format of the pixels, which are computed in fp32, and then converted.
        device: The device of the pixels.

    Attributes:
        count: Number of images of the data set.
        step: The step whose images it gives.
    """

    def __init__(
        self,
        data: DataSet,
        shuffle: Shuffle,
        *,
        num_workers: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.count = shuffle.count
        self._data, self._shuffle = data, shuffle
        self._dtype, self._device = dtype, torch.device(device)
        self.step = 0
        self._background = _Background(data.crop, num_workers) if num_workers else None

    def turn_to(self, step: int) -> None:
        """Give the images of a step from now on."""
        self.step = step
        if self._background is not None:
            self._background.keep((step, step + 1))

    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``.

        Raises:
            CannotRunError: An image cannot be read.
        """
        shape = (images[1] - images[0], CHANNELS, *box.shape)
        if box.empty or not shape[0]:
            return torch.empty(shape, dtype=self._dtype, device=self._device)
        crops = self._crops(replica, images, box)
        return torch.from_numpy(np.stack(crops)).to(self._device, self._dtype)

    def targets(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each image, or of each of a box's pixels, in int64.

        Raises:
            CannotRunError: They cannot be read.
        """
        numbers = self._shuffle.images(self.step, replica)[slice(*images)]
        found = np.asarray([self._data.target(number, box) for number in numbers], np.int64)
        return sent(torch.from_numpy(found), self._device)

    def close(self) -> None:
        """End the threads that prepare images."""
        if self._background is not None:
            self._background.close()

    def _crops(self, replica: int, images: Interval, box: Box) -> list[Pixels]:
        here, ahead = (
            [(step, number, box) for number in self._shuffle.images(step, replica)[slice(*images)]]
            for step in (self.step, self.step + 1)
        )
        if self._background is None:
            return [self._data.crop(number, box) for _, number, box in here]
        # A rank asks for the same box and the same places in each step.
        for key in (*here, *ahead):
            self._background.prepare(key)
        return [self._background.take(key) for key in here]


class _Background:
    """Crops that threads prepare, by step, number of the image, and box."""

    def __init__(self, crop: Callable[[int, Box], Pixels], workers: int) -> None:
        self._crop = crop
        self._pool = ThreadPoolExecutor(workers, "images")
        self._under_way: dict[_Key, Future[Pixels]] = {}

    def prepare(self, key: _Key) -> None:
        """Start to prepare a crop, unless it is in work or done."""
        if key not in self._under_way:
            _, number, box = key
            self._under_way[key] = self._pool.submit(self._crop, number, box)

    def take(self, key: _Key) -> Pixels:
        """Wait for a crop, return it, and forget it."""
        return self._under_way.pop(key).result()

    def keep(self, steps: tuple[int, ...]) -> None:
        """Drop the crops of other steps."""
        for key in [key for key in self._under_way if key[0] not in steps]:
            self._under_way.pop(key).cancel()

    def close(self) -> None:
        self._under_way.clear()
        self._pool.shutdown(cancel_futures=True)
