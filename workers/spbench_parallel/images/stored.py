"""Images of a data set on disk, decoded ahead of the step that needs them.

Threads of the rank decode in the background: Pillow and numpy work without Python's lock, a crop
needs no copy from process to process, and a process that uses MPI must not be forked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import torch

from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.device.host_memory import copy_to_device
from spbench_parallel.images.resizing import Pixels
from spbench_parallel.images.shuffle import Shuffle

CHANNELS = 3
"""Red, green, blue."""
_Read = Callable[[int, Box], Any]
_Key = tuple[str, int, int, Box]
"""``crop`` or ``target``, a step, an image's number in the data set, and the box of the image."""


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
        masked: Whether each pixel has a class, which is read as pixels are.
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
        masked: bool = False,
        num_workers: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.count = shuffle.count
        self._masked = masked
        self._data = data
        self._shuffle = shuffle
        self._dtype = dtype
        self._device = torch.device(device)
        self.step = 0
        self._reads: Mapping[str, _Read] = {"crop": data.crop, "target": data.target}
        self._background = _Background(self._reads, num_workers) if num_workers else None

    def set_step(self, step: int) -> None:
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
        crops = self._read("crop", replica, images, box)
        return torch.from_numpy(np.stack(crops)).to(self._device, self._dtype)

    def targets(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each image, or of each of a box's pixels, in int64.

        Raises:
            CannotRunError: They cannot be read.
        """
        if self._masked:
            found = self._read("target", replica, images, box)
        else:
            numbers = self._shuffle.images(self.step, replica)[slice(*images)]
            found = [self._data.target(number, box) for number in numbers]
        return copy_to_device(torch.from_numpy(np.asarray(found, np.int64)), self._device)

    def close(self) -> None:
        """End the threads that prepare images."""
        if self._background is not None:
            self._background.close()

    def _read(self, word: str, replica: int, images: Interval, box: Box) -> list[Any]:
        """Return the crops of some images, or their masks, and have the next step's read."""
        here, ahead = (
            [
                (word, step, number, box)
                for number in self._shuffle.images(step, replica)[slice(*images)]
            ]
            for step in (self.step, self.step + 1)
        )
        if self._background is None:
            return [self._reads[word](number, box) for _, _, number, box in here]
        # A rank asks for the same box and the same places in each step.
        for key in (*here, *ahead):
            self._background.prepare(key)
        return [self._background.take(key) for key in here]


class _Background:
    """Crops and masks that threads prepare, by step, number of the image, and box."""

    def __init__(self, reads: Mapping[str, _Read], workers: int) -> None:
        self._reads = reads
        self._pool = ThreadPoolExecutor(workers, "images")
        self._under_way: dict[_Key, Future[Any]] = {}

    def prepare(self, key: _Key) -> None:
        """Start to prepare one, unless it is in work or done."""
        if key not in self._under_way:
            word, _, number, box = key
            self._under_way[key] = self._pool.submit(self._reads[word], number, box)

    def take(self, key: _Key) -> Any:
        """Wait for one, return it, and forget it."""
        return self._under_way.pop(key).result()

    def keep(self, steps: tuple[int, ...]) -> None:
        """Drop those of other steps."""
        for key in [key for key in self._under_way if key[1] not in steps]:
            self._under_way.pop(key).cancel()

    def close(self) -> None:
        self._under_way.clear()
        self._pool.shutdown(cancel_futures=True)
