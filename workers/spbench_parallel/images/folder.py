"""Images in one folder per class: ``datapath/CLASS/*.png``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from spbench_core.layout.tiles import Box
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images.resizing import BilinearResize, Pixels

SUFFIXES = {".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
_MODES_16_BIT = ("I;16", "I;16B", "I;16L", "I;16N", "I")
"""Pillow's modes of 16-bit grey; a 16-bit PGM has the last one."""
_WHITE_16_BIT = 65535

# Pillow rejects images above 179 million pixels, to protect servers from uploads. These are the
# user's files, and spbench is made for large images.
Image.MAX_IMAGE_PIXELS = None


class ImageFolder:
    """The images of a folder, in the size that a model takes.

    A rank decodes an image and keeps the pixels of its crop. Grey images become RGB with three
    equal channels. If a file has several images, the first is used.

    Args:
        path: The folder. Its subfolders with images, by name, are the classes 0, 1, ... Hidden ones
            are skipped, and nested folders belong to their class.
        num_classes: The number of classes of the model.
        size: Height and width of the model's images.

    Raises:
        CannotRunError: The folder is missing, has no images, or has more classes than the model.
    """

    def __init__(self, path: Path, num_classes: int, size: tuple[int, int]) -> None:
        if not path.is_dir():
            raise CannotRunError(
                f"there is no folder {path}: set datapath to the one that holds a folder of images "
                "for each class"
            )
        files_by_folder = {folder.name: list_images(folder) for folder in _list_folders(path)}
        files_by_class = {name: files for name, files in sorted(files_by_folder.items()) if files}
        if not files_by_class:
            raise CannotRunError(
                f"{path} holds no images: put them in a folder for each class, such as "
                f"{path / 'CLASS' / 'image.png'} ({' '.join(sorted(SUFFIXES))})"
            )
        if len(files_by_class) > num_classes:
            raise CannotRunError(
                f"{path} has {len(files_by_class)} classes, and the model has {num_classes}: "
                f"set num_classes to {len(files_by_class)}"
            )
        self._files = [file for files in files_by_class.values() for file in files]
        self._labels = [label for label, files in enumerate(files_by_class.values()) for _ in files]
        self._size = size

    def __len__(self) -> int:
        return len(self._files)

    def crop(self, number: int, box: Box) -> Pixels:
        """Return a box of an image, ``channels x rows x cols``, in fp32 from -1 to 1.

        Raises:
            CannotRunError: The image cannot be read.
        """
        return read_crop(self._files[number], self._size, box)

    def target(self, number: int, box: Box) -> int:
        """Return the class of an image."""
        return self._labels[number]


def read_crop(file: Path, size: tuple[int, int], box: Box) -> Pixels:
    """Return a box of a resized image file, in fp32 from -1 to 1.

    The result is ``channels x rows x cols``.

    Raises:
        CannotRunError: The image cannot be read.
    """
    with open_image(file) as image:
        resizing = BilinearResize((image.height, image.width), size, box)
        needed = resizing.needed
        white = _white_value(image)
        part = image.crop((needed.cols[0], needed.rows[0], needed.cols[1], needed.rows[1]))
    values: Pixels = resizing.apply(_to_channels(part)) / np.float32(white / 2) - np.float32(1)
    return values


@contextmanager
def open_image(file: Path) -> Iterator[Image.Image]:
    """Open an image file.

    Raises:
        CannotRunError: It cannot be read as an image.
    """
    try:
        with Image.open(file) as image:
            yield image
    except (OSError, SyntaxError, ValueError) as error:
        # Pillow raises SyntaxError for a broken PNG.
        raise CannotRunError(
            f"{file} cannot be read as an image ({error}): repair it or remove it"
        ) from None


def _list_folders(path: Path) -> list[Path]:
    try:
        return [
            folder
            for folder in path.iterdir()
            if folder.is_dir() and not folder.name.startswith(".")
        ]
    except OSError as error:
        raise CannotRunError(f"{path} cannot be read: {error.strerror}") from None


def list_images(folder: Path) -> list[Path]:
    """Return a folder's images sorted by path, the same on every rank."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
    )


def _white_value(image: Image.Image) -> int:
    if image.mode == "F":
        raise ValueError("its values are fractions of no known range")
    return _WHITE_16_BIT if image.mode in _MODES_16_BIT else 255


def _to_channels(part: Image.Image) -> Pixels:
    """Return the values, ``channels x rows x cols``."""
    if part.mode in _MODES_16_BIT:
        grey = np.asarray(part)
        return np.broadcast_to(grey, (3, *grey.shape))
    return np.moveaxis(np.asarray(part.convert("RGB")), 2, 0)
