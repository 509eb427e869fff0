"""Images with masks: ``datapath/images/NAME.png`` and ``datapath/masks/NAME.png``.

A mask has one channel with the class of each pixel: 0, 1, ... It may have integers of 8 or 16 bits,
or a palette with indices. It is resized by nearest neighbour.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from spbench_core.layout.tiles import Box, Interval
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images.folder import list_images, open_image, read_crop
from spbench_parallel.images.resizing import Pixels

IMAGES = "images"
MASKS = "masks"
_MODES = ("1", "L", "P", "I", "I;16", "I;16B", "I;16L", "I;16N")
"""Pillow's modes with one integer per pixel."""


class MaskedFolder:
    """The images of a folder with the class of each pixel, in the model's size.

    Args:
        path: The folder that contains both folders. An image and its mask have the same path in
            them, except for the suffix.
        num_classes: The number of classes of the model.
        size: Height and width of the model's images.

    Raises:
        CannotRunError: A folder or a mask is missing, or there is no image.
    """

    def __init__(self, path: Path, num_classes: int, size: tuple[int, int]) -> None:
        for name in (IMAGES, MASKS):
            if not (path / name).is_dir():
                raise CannotRunError(
                    f"there is no folder {path / name}: set datapath to the folder that has "
                    f"{IMAGES} and {MASKS}, an image and its mask of the same name"
                )
        images, masks = (_map_by_name(path / name) for name in (IMAGES, MASKS))
        if not images:
            raise CannotRunError(f"{path / IMAGES} holds no images")
        if missing := [name for name in images if name not in masks]:
            raise CannotRunError(
                f"{images[missing[0]]} has no mask {path / MASKS / missing[0]}.png: add it, or "
                "remove the image"
            )
        self._pairs = [(file, masks[name]) for name, file in images.items()]
        self._num_classes = num_classes
        self._size = size

    def __len__(self) -> int:
        return len(self._pairs)

    def crop(self, number: int, box: Box) -> Pixels:
        """Return a box of an image, ``channels x rows x cols``, in fp32 from -1 to 1.

        Raises:
            CannotRunError: The image cannot be read.
        """
        return read_crop(self._pairs[number][0], self._size, box)

    def target(self, number: int, box: Box) -> Pixels:
        """Return the class of each pixel of a box, ``rows x cols``.

        Raises:
            CannotRunError: The mask cannot be read, or has a class that the model lacks.
        """
        file = self._pairs[number][1]
        with open_image(file) as image:
            if image.mode not in _MODES:
                raise ValueError(f"a mask has a number a pixel, and this one is {image.mode}")
            classes = _resize_nearest(image, self._size, box)
        smallest_and_largest = int(classes.min(initial=0)), int(classes.max(initial=0))
        for class_number in smallest_and_largest:
            if not 0 <= class_number < self._num_classes:
                raise CannotRunError(
                    f"{file} has the class {class_number}, and the network has "
                    f"{self._num_classes}, from 0: change the mask, or give the network more"
                )
        return classes


def _map_by_name(folder: Path) -> dict[str, Path]:
    """Return the images of a folder by their relative paths without suffix."""
    return {str(file.relative_to(folder).with_suffix("")): file for file in list_images(folder)}


def _resize_nearest(image: Image.Image, size: tuple[int, int], box: Box) -> Pixels:
    """Return a box of a resized mask, like torch's ``nearest-exact``.

    Only the pixels that the box needs are kept.
    """
    source_rows = _find_source_pixels(box.rows, image.height, size[0])
    source_cols = _find_source_pixels(box.cols, image.width, size[1])
    if box.empty:
        return np.empty(box.shape, np.int64)
    part = image.crop(
        (
            int(source_cols[0]),
            int(source_rows[0]),
            int(source_cols[-1]) + 1,
            int(source_rows[-1]) + 1,
        )
    )
    values = np.asarray(part).astype(np.int64)
    resized: Pixels = values[source_rows - source_rows[0]][:, source_cols - source_cols[0]]
    return resized


def _find_source_pixels(interval: Interval, source_length: int, target_length: int) -> Pixels:
    """Return the source pixel that contains the centre of each target pixel."""
    return (2 * np.arange(*interval) + 1) * source_length // (2 * target_length)
