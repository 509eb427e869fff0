"""Files of a network's ``state_dict``: torch's own (``.pt``), or safetensors (``.safetensors``)."""

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
    """Return what a file holds; no code in it is run.

    Raises:
        CannotRunError: It cannot be read, or needs a package that is not installed.
    """
    if path.suffix == SAFE:
        return _read_safe(path)
    try:
        return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise _unreadable(path, error, "torch's tensors") from None


def write_state(state: Mapping[str, torch.Tensor], path: Path, file: BinaryIO) -> None:
    """Write a ``state_dict`` in the format of a path's suffix into an open file."""
    if path.suffix != SAFE:
        torch.save(dict(state), file)
        return
    # Copies: its tensors may share no memory, as tied weights do.
    file.write(_safetensors(path).save({name: one.clone() for name, one in state.items()}))


def check_format(path: Path) -> None:
    """Refuse a path whose format needs a package that is not installed.

    Raises:
        CannotRunError: It does.
    """
    if path.suffix == SAFE:
        _safetensors(path)


def _read_safe(path: Path) -> Any:
    package = _safetensors(path)
    try:
        return package.load_file(path)
    except Exception as error:  # of the system, or its own
        raise _unreadable(path, error, "safetensors") from None


def _safetensors(path: Path) -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise CannotRunError(
            f"{path} is of safetensors, which is not installed: pip install 'spbench[safetensors]',"
            " or take a file of torch's, .pt"
        ) from None
    return safetensors.torch


def _unreadable(path: Path, error: Exception, kind: str) -> CannotRunError:
    told = f"it is no file of {kind}"
    if isinstance(error, OSError):
        told = error.strerror or os.strerror(errno.ENOENT)  # safetensors says it in words alone
    return CannotRunError(f"weights {path} cannot be read: {told}")
