"""CIFAR-10 as a folder or archive of pickles or binary records.

The format is described at https://www.cs.toronto.edu/~kriz/cifar.html. Krizhevsky, "Learning
Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import io
import pickle
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from spbench_core.layout.tiles import Box
from spbench_parallel.errors import CannotRunError
from spbench_parallel.images.resizing import BilinearResize, Pixels

_ALLOWED = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    # Python 3 pickles bytes for Python 2 by this function.
    ("_codecs", "encode"),
}
"""The functions and classes that pickles of number arrays use. Others could run code."""


class _SafeUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def read_pickle(pickle_bytes: bytes) -> Any:
    """Return the object of a pickle of Python 2 or 3; text of Python 2 comes as bytes.

    Only numbers, text, lists, dictionaries and arrays are created.

    Raises:
        pickle.UnpicklingError: The pickle contains other objects, or is invalid.
    """
    try:
        return _SafeUnpickler(io.BytesIO(pickle_bytes), encoding="bytes").load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a broken pickle may raise any exception
        raise pickle.UnpicklingError(f"it is no pickle: {error}") from None


SIDE = 32
"""Rows and columns of an image."""
CLASSES = 10
_IMAGE_VALUES = 3 * SIDE * SIDE
_BATCH_FILE = re.compile(r"data_batch_\d+(\.bin)?")
"""The training files; test files are not read."""
_FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")
_ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz")
Batch = tuple[Pixels, list[int]]
"""Images in uint8, ``count x channels x rows x cols``, and their classes."""


class Cifar:
    """The 50,000 training images of CIFAR-10, in the size that a model takes.

    Every rank holds all images in their original size, 150 MB. It resizes only the requested boxes.

    Args:
        path: The folder, the archive, or the folder above either.
        size: Height and width of the model's images.

    Raises:
        CannotRunError: The data set is missing or cannot be read.
    """

    def __init__(self, path: Path, size: tuple[int, int]) -> None:
        source = _find_data(path)
        batches = [_parse_batch(file, file_bytes) for file, file_bytes in _read_files(source)]
        if not batches:
            raise CannotRunError(f"{source} has no file data_batch_1; is it CIFAR-10 as unpacked?")
        self._images = np.concatenate([images for images, _ in batches])
        self._labels = [label for _, labels in batches for label in labels]
        self._size = size

    def __len__(self) -> int:
        return len(self._labels)

    def crop(self, number: int, box: Box) -> Pixels:
        """Return a box of an image, ``channels x rows x cols``, in fp32 from -1 to 1."""
        resizing = BilinearResize((SIDE, SIDE), self._size, box)
        needed = resizing.needed
        source_pixels = self._images[number, :, slice(*needed.rows), slice(*needed.cols)]
        crop: Pixels = resizing.apply(source_pixels) / np.float32(127.5) - np.float32(1)
        return crop

    def target(self, number: int, box: Box) -> int:
        """Return the class of an image."""
        return self._labels[number]


def _find_data(path: Path) -> Path:
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


def _read_files(source: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each batch, in the order of their names."""
    try:
        if source.is_dir():
            for file in sorted(source.iterdir()):
                if _BATCH_FILE.fullmatch(file.name):
                    yield str(file), file.read_bytes()
        else:
            yield from sorted(_read_members(source))
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise CannotRunError(
            f"{source} cannot be read ({error}): set datapath to CIFAR-10's folder or archive"
        ) from None


def _read_members(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive, "r:*") as archive_file:
        for member in archive_file:
            # Read in memory, without unpacking: a member's name may be a path outside the folder.
            content = archive_file.extractfile(member)
            if content is not None and _BATCH_FILE.fullmatch(Path(member.name).name):
                yield f"{archive}: {member.name}", content.read()


def _parse_batch(file: str, file_bytes: bytes) -> Batch:
    """Return the images of a file and their classes."""
    try:
        images, labels = (
            _parse_records(file_bytes) if file.endswith(".bin") else _parse_pickle(file_bytes)
        )
    except (ValueError, TypeError, pickle.UnpicklingError) as error:
        raise CannotRunError(
            f"{file} is no batch of CIFAR-10: {error}; download it again"
        ) from None
    return images, labels


def _parse_records(file_bytes: bytes) -> Batch:
    """Return the images of binary records: a byte for the class, then the pixels."""
    records = np.frombuffer(file_bytes, np.uint8)
    if not records.size or records.size % (1 + _IMAGE_VALUES):
        raise ValueError(f"{records.size} bytes are no records of {1 + _IMAGE_VALUES}")
    records = records.reshape(-1, 1 + _IMAGE_VALUES)
    return _check_batch(records[:, 1:], records[:, 0].tolist())


def _parse_pickle(file_bytes: bytes) -> Batch:
    content = read_pickle(file_bytes)
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__}, no dictionary")
    fields = {key.decode() if isinstance(key, bytes) else key: content[key] for key in content}
    missing = {"data", "labels"} - fields.keys()
    if missing:
        raise ValueError(f"it has no {' and no '.join(sorted(missing))}")
    return _check_batch(fields["data"], list(fields["labels"]))


def _check_batch(pixel_rows: object, labels: list[int]) -> Batch:
    if not isinstance(pixel_rows, np.ndarray) or pixel_rows.dtype != np.uint8:
        raise ValueError("its data are no array of uint8")
    if pixel_rows.shape != (len(labels), _IMAGE_VALUES):
        raise ValueError(
            f"its data have shape {pixel_rows.shape}, not {(len(labels), _IMAGE_VALUES)}"
        )
    if not set(labels) <= set(range(CLASSES)):
        raise ValueError(f"its labels are not all below {CLASSES}")
    return pixel_rows.reshape(-1, 3, SIDE, SIDE), labels
