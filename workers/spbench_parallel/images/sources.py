"""Sources of images: opens the source that a case's parameters name."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

from spbench_core.layout.tiles import Box, Interval
from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images.cifar import CLASSES, Cifar
from spbench_parallel.images.folder import ImageFolder
from spbench_parallel.images.masks import MaskedFolder
from spbench_parallel.images.stored import DataSet, Shuffle, StoredImages
from spbench_parallel.images.synthetic import PatternImages, SyntheticImages

_SYNTHETIC: dict[str, type[SyntheticImages | PatternImages]] = {
    "synthetic": SyntheticImages,
    "patterns": PatternImages,
}


class ImageSource(Protocol):
    """A source of images and their targets, by step.

    Steps are numbered from 0. A step may be requested repeatedly.

    Attributes:
        count: Number of images of the data set; None if they are endless.
        step: The current step.
    """

    @property
    def count(self) -> int | None: ...
    @property
    def step(self) -> int: ...

    def set_step(self, step: int) -> None:
        """Set the step of the next images; the first is 0."""

    def pixels(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return a box of some of a replica's images, ``images x channels x rows x cols``."""

    def targets(self, replica: int, images: Interval, box: Box) -> torch.Tensor:
        """Return the class of each image, or of each of a box's pixels, in int64."""

    def close(self) -> None:
        """Free threads and memory."""


def open_images(
    app: str,
    *,
    image: MapShape,
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
    """Open the images of an app. Not collective; all ranks get the same images.

    Args:
        app: ``synthetic``, ``patterns``, ``cifar`` or ``medical``.
        image: The shape of the model's images.
        num_classes: The number of classes of the model.
        batch: Images per step and replica.
        replicas: The number of replicas; each has different images.
        seed: The seed of synthetic images, and of the order of stored ones.
        masked: Whether each pixel has a class, instead of each image.
        datapath: The folder or archive of stored images; None for synthetic ones.
        num_workers: Threads that prepare the next step's images.
        dtype: The number format of the pixels.
        device: The device of the pixels.

    Raises:
        CannotRunError: The images are missing, unreadable, too few for a step, or have more classes
            than the model.
        ValueError: The app is unknown.
    """
    if app in _SYNTHETIC:
        source_type = _SYNTHETIC[app]
        return source_type(image, num_classes, seed=seed, masked=masked, dtype=dtype, device=device)
    open_set = _open_masked_set if masked else _open_data_set
    data_set = open_set(app, _expand_path(app, datapath), num_classes, (image.height, image.width))
    shuffle = Shuffle(len(data_set), batch, replicas, seed)
    return StoredImages(
        data_set, shuffle, masked=masked, num_workers=num_workers, dtype=dtype, device=device
    )


def _expand_path(app: str, datapath: str | None) -> Path:
    if datapath is None:
        raise CannotRunError(f"app {app} needs a datapath: where its images are")
    return Path(datapath).expanduser()


def _open_masked_set(app: str, path: Path, num_classes: int, size: tuple[int, int]) -> DataSet:
    if app != "medical":
        raise CannotRunError(f"app {app} has no masks, which a network that segments needs")
    return MaskedFolder(path, num_classes, size)


def _open_data_set(app: str, path: Path, num_classes: int, size: tuple[int, int]) -> DataSet:
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
