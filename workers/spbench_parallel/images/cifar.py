"""CIFAR-10 as its authors give it: a folder or an archive, of pickles or of plain records.

The format is that of https://www.cs.toronto.edu/~kriz/cifar.html. Krizhevsky, "Learning Multiple
Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import pickle
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from spbench_core.layout.tiles import Box
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images.pickles import read_pickle
from spbench_parallel.images.resizing import BilinearResize, Pixels

SIDE = 32
"""Rows and columns of an image."""
CLASSES = 10
_VALUES = 3 * SIDE * SIDE
_BATCH = re.compile(r"data_batch_\d+(\.bin)?")
"""The files to learn from; those to test with are left out."""
_FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
_ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz")
Batch = tuple[Pixels, list[int]]
"""Images in uint8, ``count x channels x rows x cols``, and their classes."""


class Cifar:
    """The 50,000 training images of CIFAR-10, in the size that a model takes.

    Every rank holds all of them in their own size, 150 MB; it resizes only the boxes of images that
    are asked for.

    Args:
        path: The folder, the archive, or the folder above either.
        size: Height and width of the model's images.

    Raises:
        CannotRunError: There is no such data set, or it cannot be read.
    """

    def __init__(self, path: Path, size: tuple[int, int]) -> None:
        place = _find(path)
        batches = [_batch(file, data) for file, data in _files(place)]
        if not batches:
            raise CannotRunError(f"{place} has no file data_batch_1; is it CIFAR-10 as unpacked?")
        self._images = np.concatenate([images for images, _ in batches])
        self._labels = [label for _, labels in batches for label in labels]
        self._size = size

    def __len__(self) -> int:
        return len(self._labels)

    def crop(self, number: int, box: Box) -> Pixels:
        """Return a box of an image, ``channels x rows x cols``, in fp32 from -1 to 1."""
        resizing = BilinearResize((SIDE, SIDE), self._size, box)
        needs = resizing.needed
        data = self._images[number, :, slice(*needs.rows), slice(*needs.cols)]
        made: Pixels = resizing.apply(data) / np.float32(127.5) - np.float32(1)
        return made

    def target(self, number: int, box: Box) -> int:
        """Return the class of an image."""
        return self._labels[number]


def _find(path: Path) -> Path:
    """Return the folder of the batches, or the archive."""
    if not path.exists():
        raise CannotRunError(
            f"there is no {path}: set datapath to the folder or the .tar.gz archive of CIFAR-10, "
            "which is not downloaded here"
        )
    if path.is_file() or any(path.glob("data_batch_*")):
        return path
    for name in (*_FOLDERS, *_ARCHIVES):
        if (path / name).exists():
            return path / name
    raise CannotRunError(
        f"{path} holds no CIFAR-10: none of data_batch_1, {', '.join((*_FOLDERS, *_ARCHIVES))}"
    )


def _files(place: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each batch, in the order of their names."""
    try:
        if place.is_dir():
            for file in sorted(place.iterdir()):
                if _BATCH.fullmatch(file.name):
                    yield str(file), file.read_bytes()
        else:
            yield from sorted(_members(place))
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise CannotRunError(
            f"{place} cannot be read ({error}): set datapath to CIFAR-10's folder or archive"
        ) from None


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive, "r:*") as found:
        for member in found:
            # Read where it lies: nothing is unpacked, wherever a member's name points to.
            content = found.extractfile(member)
            if content is not None and _BATCH.fullmatch(Path(member.name).name):
                yield f"{archive}: {member.name}", content.read()


def _batch(file: str, data: bytes) -> Batch:
    """Return the images of a file and their classes, of which there are ten."""
    try:
        images, labels = _records(data) if file.endswith(".bin") else _pickled(data)
    except (ValueError, TypeError, pickle.UnpicklingError) as error:
        raise CannotRunError(
            f"{file} is no batch of CIFAR-10: {error}; download it again"
        ) from None
    return images, labels


def _records(data: bytes) -> Batch:
    """Return the images of plain records: of each one byte for the class, and then the pixels."""
    records = np.frombuffer(data, np.uint8)
    if not records.size or records.size % (1 + _VALUES):
        raise ValueError(f"{records.size} bytes are no records of {1 + _VALUES}")
    records = records.reshape(-1, 1 + _VALUES)
    return _checked(records[:, 1:], records[:, 0].tolist())


def _pickled(data: bytes) -> Batch:
    found = read_pickle(data)
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__}, no dictionary")
    words = {key.decode() if isinstance(key, bytes) else key: found[key] for key in found}
    missing = {"data", "labels"} - words.keys()
    if missing:
        raise ValueError(f"it has no {' and no '.join(sorted(missing))}")
    return _checked(words["data"], list(words["labels"]))


def _checked(data: object, labels: list[int]) -> Batch:
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8:
        raise ValueError("its data are no array of uint8")
    if data.shape != (len(labels), _VALUES):
        raise ValueError(f"its data have shape {data.shape}, not {(len(labels), _VALUES)}")
    if not set(labels) <= set(range(CLASSES)):
        raise ValueError(f"its labels are not all below {CLASSES}")
    return data.reshape(-1, 3, SIDE, SIDE), labels
