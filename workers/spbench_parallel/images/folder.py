"""Images in folders, one for each class: how medical images are kept, ``datapath/CLASS/*.png``."""

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
_DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I")
"""Pillow's modes of grey in 16 bits; a PGM of 16 bits comes as the last."""
_DEEPEST = 65535

# Pillow refuses images over 179 million pixels, lest a web page's upload fill the memory. These are
# the user's own, and large ones are what this is about.
Image.MAX_IMAGE_PIXELS = None


class ImageFolder:
    """The images of a folder, in the size that a model takes.

    A rank decodes an image and keeps the pixels of its crop. Grey becomes red, green and blue
    alike; of a file with several images the first one counts.

    Args:
        path: The folder. Its folders with images, by name, are the classes 0, 1, ...; hidden ones
            do not count, and folders within them count as theirs.
        num_classes: The number of classes of the model.
        size: Height and width of the model's images.

    Raises:
        CannotRunError: There is no such folder, no image in it, or more classes than the model has.
    """

    def __init__(self, path: Path, num_classes: int, size: tuple[int, int]) -> None:
        if not path.is_dir():
            raise CannotRunError(
                f"there is no folder {path}: set datapath to the one that holds a folder of images "
                "for each class"
            )
        found = {folder.name: list_images(folder) for folder in _folders(path)}
        classes = {name: files for name, files in sorted(found.items()) if files}
        if not classes:
            raise CannotRunError(
                f"{path} holds no images: put them in a folder for each class, such as "
                f"{path / 'CLASS' / 'image.png'} ({' '.join(sorted(SUFFIXES))})"
            )
        if len(classes) > num_classes:
            raise CannotRunError(
                f"{path} has {len(classes)} classes, and the model has {num_classes}: "
                f"set num_classes to {len(classes)}"
            )
        self._files = [file for files in classes.values() for file in files]
        self._labels = [label for label, files in enumerate(classes.values()) for _ in files]
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
    """Return a box of an image file in a size, ``channels x rows x cols``, in fp32 from -1 to 1.

    Raises:
        CannotRunError: The image cannot be read.
    """
    with open_image(file) as image:
        resizing = BilinearResize((image.height, image.width), size, box)
        needs = resizing.needed
        most = _most(image)
        part = image.crop((needs.cols[0], needs.rows[0], needs.cols[1], needs.rows[1]))
    made: Pixels = resizing.apply(_values(part)) / np.float32(most / 2) - np.float32(1)
    return made


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
        # Pillow's SyntaxError: a PNG whose parts are broken.
        raise CannotRunError(
            f"{file} cannot be read as an image ({error}): repair it or remove it"
        ) from None


def _folders(path: Path) -> list[Path]:
    try:
        return [one for one in path.iterdir() if one.is_dir() and not one.name.startswith(".")]
    except OSError as error:
        raise CannotRunError(f"{path} cannot be read: {error.strerror}") from None


def list_images(folder: Path) -> list[Path]:
    """Return a folder's images in the order of their paths: the same on every rank."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
    )


def _most(image: Image.Image) -> int:
    """Return the value of white."""
    if image.mode == "F":
        raise ValueError("its values are fractions of no known range")
    return _DEEPEST if image.mode in _DEEP else 255


def _values(part: Image.Image) -> Pixels:
    """Return the values, ``channels x rows x cols``."""
    if part.mode in _DEEP:
        grey = np.asarray(part)
        return np.broadcast_to(grey, (3, *grey.shape))
    return np.moveaxis(np.asarray(part.convert("RGB")), 2, 0)
