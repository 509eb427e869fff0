"""Files with a network's ``state_dict``: torch (``.pt``) or safetensors."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from spbench_parallel.errors import CannotRunError

SAFE = ".safetensors"


def read_state(path: Path) -> Any:
    """Return the contents of a file, without running code in it.

    Raises:
        CannotRunError: It cannot be read, or needs a package that is not installed.
    """
    if path.suffix == SAFE:
        return _read_safe(path)
    try:
        return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise _read_error(path, error, "torch's tensors") from None


def write_state(state: Mapping[str, torch.Tensor], path: Path, file: BinaryIO) -> None:
    """Write a ``state_dict`` to an open file, in the format of a path's suffix."""
    if path.suffix != SAFE:
        torch.save(dict(state), file)
        return
    # Copies, because safetensors rejects tensors that share memory, such as tied weights.
    file.write(
        _import_safetensors(path).save({name: tensor.clone() for name, tensor in state.items()})
    )


def check_format(path: Path) -> None:
    """Check that the package for a path's format is installed.

    Raises:
        CannotRunError: It is not.
    """
    if path.suffix == SAFE:
        _import_safetensors(path)


def _read_safe(path: Path) -> Any:
    package = _import_safetensors(path)
    try:
        return package.load_file(path)
    except Exception as error:  # an OSError, or the package's own error
        raise _read_error(path, error, "safetensors") from None


def _import_safetensors(path: Path) -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise CannotRunError(
            f"{path} is of safetensors, which is not installed: pip install 'spbench[safetensors]',"
            " or take a file of torch's, .pt"
        ) from None
    return safetensors.torch


def _read_error(path: Path, error: Exception, kind: str) -> CannotRunError:
    reason = f"it is no file of {kind}"
    if isinstance(error, OSError):
        reason = error.strerror or os.strerror(errno.ENOENT)  # safetensors sets only a text
    return CannotRunError(f"weights {path} cannot be read: {reason}")
