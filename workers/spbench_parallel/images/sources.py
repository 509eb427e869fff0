"""Sources of images: the one that a case's parameters name is opened here."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

from spbench_core.layout.tiles import Box, Interval
from spbench_core.models.parts import Map
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images.cifar import CLASSES, Cifar
from spbench_parallel.images.folder import ImageFolder
from spbench_parallel.images.masks import MaskedFolder
from spbench_parallel.images.patterns import PatternImages
from spbench_parallel.images.shuffle import Shuffle
from spbench_parallel.images.stored import DataSet, StoredImages
from spbench_parallel.images.synthetic import SyntheticImages

_MADE_UP: dict[str, type[SyntheticImages | PatternImages]] = {
    "synthetic": SyntheticImages,
    "patterns": PatternImages,
}


class ImageSource(Protocol):
    """A source of images and their targets, step by step, as stage runners use it.

    Steps are numbered from 0, and each may be asked for again.

    Attributes:
        count: Number of images of the data set; None where they are endless.
        step: The step whose images it gives.
    """

    @property
    def count(self) -> int | None: ...
    @property
    def step(self) -> int: ...

    def set_step(self, step: int) -> None:
        """Give the images of a step from now on; it begins with step 0."""

    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""

    def targets(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each image, or of each of a box's pixels, in int64."""

    def close(self) -> None:
        """Free threads and memory."""


def open_images(
    app: str,
    *,
    image: Map,
    num_classes: int,
    batch: int,
    replicas: int,
    seed: int,
    masked: bool = False,
    datapath: str | None = None,
    num_workers: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> ImageSource:
    """Open an app's images. Each rank does so alone, and gets what the others get.

    Args:
        app: ``synthetic``, ``patterns``, ``cifar`` or ``medical``.
        image: The shape of the model's images.
        num_classes: The number of classes of the model.
        batch: Images of a replica's step.
        replicas: The number of replicas, each with images of its own.
        seed: The seed of synthetic images, and of the order of others.
        masked: Whether each pixel has a class, not each image.
        datapath: The folder or archive of stored images; None for those that are made up.
        num_workers: Threads that prepare the next step's images.
        dtype: The number format of the pixels.
        device: The device of the pixels.

    Raises:
        CannotRunError: The images are missing, cannot be read, are too few for a step, or of more
            classes than the model has.
        ValueError: There is no such app.
    """
    if app in _MADE_UP:
        make = _MADE_UP[app]
        return make(image, num_classes, seed=seed, masked=masked, dtype=dtype, device=device)
    open_data = _masked_set if masked else _data_set
    data = open_data(app, _path(app, datapath), num_classes, (image.height, image.width))
    shuffle = Shuffle(len(data), batch, replicas, seed)
    return StoredImages(
        data, shuffle, masked=masked, num_workers=num_workers, dtype=dtype, device=device
    )


def _path(app: str, datapath: str | None) -> Path:
    if datapath is None:
        raise CannotRunError(f"app {app} needs a datapath: where its images are")
    return Path(datapath).expanduser()


def _masked_set(app: str, path: Path, num_classes: int, size: tuple[int, int]) -> DataSet:
    if app != "medical":
        raise CannotRunError(f"app {app} has no masks, which a network that segments needs")
    return MaskedFolder(path, num_classes, size)


def _data_set(app: str, path: Path, num_classes: int, size: tuple[int, int]) -> DataSet:
    if app == "medical":
        return ImageFolder(path, num_classes, size)
    if app != "cifar":
        raise ValueError(
            f"there is no app {app!r}; there are synthetic, patterns, cifar and medical"
        )
    if num_classes < CLASSES:
        raise CannotRunError(
            f"CIFAR-10 has {CLASSES} classes, and the model has {num_classes}: "
            f"set num_classes to {CLASSES}"
        )
    return Cifar(path, size)
