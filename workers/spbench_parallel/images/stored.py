"""Images of a data set on disk, in shuffled order, decoded ahead of their step.

Threads of the rank decode in the background. Pillow and numpy release the GIL, a crop needs no copy
between processes, and a process that uses MPI must not be forked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from spbench_core.layout.tiles import Box, Interval
from spbench_core.number_text import format_quantity
from spbench_parallel.device.host_memory import copy_to_device
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images.random_bits import make_generator
from spbench_parallel.images.resizing import Pixels


@dataclass(slots=True)
class Shuffle:
    """The order of a data set's images, different in each epoch, equal on all ranks.

    Each step takes ``replicas * batch`` different images, one replica after the other. Images left
    at the end of an epoch, too few for a step, are dropped.

    Attributes:
        count: Number of images of the data set.
        batch: Images per step and replica.
        replicas: The number of replicas; each has different images.
        seed: The seed of the order.
    """

    count: int
    batch: int
    replicas: int
    seed: int
    _order: tuple[int, list[int]] = field(default=(-1, []), init=False)

    def __post_init__(self) -> None:
        if self.count < self.batch * self.replicas:
            raise CannotRunError(
                f"the data set has {format_quantity(self.count, 'image')}, and a step "
                f"takes {self.batch * self.replicas} (batch_size x replicas): take a smaller "
                "batch_size or add images"
            )

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return self.count // (self.batch * self.replicas)

    def images(self, step: int, replica: int) -> list[int]:
        """Return a replica's images of a step, by index in the data set."""
        epoch, step_in_epoch = divmod(step, self.steps)
        if self._order[0] != epoch:
            order = torch.randperm(self.count, generator=make_generator("order", self.seed, epoch))
            self._order = epoch, order.tolist()
        first_position = (step_in_epoch * self.replicas + replica) * self.batch
        return self._order[1][first_position : first_position + self.batch]


CHANNELS = 3  # grey images become RGB, too
_Read = Callable[[int, Box], Any]
_Key = tuple[str, int, int, Box]
"""``crop`` or ``target``, step, index of the image in the data set, and its box."""


class DataSet(Protocol):
    """Images by index, each with its class, or with the class of each pixel."""

    def __len__(self) -> int: ...

    def crop(self, number: int, box: Box) -> Pixels:
        """Return a box of an image in the model's size, in fp32 from -1 to 1.

        The box is not empty. Several threads may call it at once.

        Raises:
            CannotRunError: The image cannot be read.
        """

    def target(self, number: int, box: Box) -> int | Pixels:
        """Return the class of an image, or of each pixel of a box, ``rows x cols``.

        Raises:
            CannotRunError: They cannot be read, or exceed the model's classes.
        """


class StoredImages:
    """A source of the images of a data set on disk.

    Args:
        data: The data set.
        shuffle: The order of the images.
        masked: Whether each pixel has a class; masks are read like images.
        num_workers: Threads that prepare the next step's images during a step. With 0, images are
            read when they are requested.
        dtype: The number format of the pixels; they are computed in fp32.
        device: The device of the pixels.

    Attributes:
        count: Number of images of the data set.
        step: The current step.
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
        self._read_functions: Mapping[str, _Read] = {"crop": data.crop, "target": data.target}
        self._prefetcher = _Prefetcher(self._read_functions, num_workers) if num_workers else None

    def set_step(self, step: int) -> None:
        """Set the step of the next images."""
        self.step = step
        if self._prefetcher is not None:
            self._prefetcher.drop_others((step, step + 1))

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
            labels = self._read("target", replica, images, box)
        else:
            indices = self._shuffle.images(self.step, replica)[slice(*images)]
            labels = [self._data.target(index, box) for index in indices]
        return copy_to_device(torch.from_numpy(np.asarray(labels, np.int64)), self._device)

    def close(self) -> None:
        """End the threads that prepare images."""
        if self._prefetcher is not None:
            self._prefetcher.close()

    def _read(self, kind: str, replica: int, images: Interval, box: Box) -> list[Any]:
        """Return crops or masks of some images, and prepare those of the next step."""
        current_keys, next_keys = (
            [
                (kind, step, index, box)
                for index in self._shuffle.images(step, replica)[slice(*images)]
            ]
            for step in (self.step, self.step + 1)
        )
        if self._prefetcher is None:
            return [self._read_functions[kind](index, box) for _, _, index, box in current_keys]
        # The next step's keys are known: a rank requests the same box and positions in each step.
        for key in (*current_keys, *next_keys):
            self._prefetcher.prepare(key)
        return [self._prefetcher.take(key) for key in current_keys]


class _Prefetcher:
    """Crops and masks prepared by threads, by step, index of the image, and box."""

    def __init__(self, read_functions: Mapping[str, _Read], workers: int) -> None:
        self._read_functions = read_functions
        self._pool = ThreadPoolExecutor(workers, "images")
        self._futures: dict[_Key, Future[Any]] = {}

    def prepare(self, key: _Key) -> None:
        """Start to prepare an image, unless that has been started."""
        if key not in self._futures:
            kind, _, index, box = key
            self._futures[key] = self._pool.submit(self._read_functions[kind], index, box)

    def take(self, key: _Key) -> Any:
        """Wait for an image, and remove and return it."""
        return self._futures.pop(key).result()

    def drop_others(self, steps: tuple[int, ...]) -> None:
        """Drop the images of other steps."""
        for key in [key for key in self._futures if key[1] not in steps]:
            self._futures.pop(key).cancel()

    def close(self) -> None:
        self._futures.clear()
        self._pool.shutdown(cancel_futures=True)
