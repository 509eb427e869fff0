"""Checkpoint files: written atomically, and checked when they are read."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import torch

from spbench_core.models.layers import Layer, Model
from spbench_parallel.errors import CannotRunError

SCHEMA = "spbench.checkpoint/1"
NamedTensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a checkpoint file, a dictionary with these keys.

    Attributes:
        schema: `SCHEMA`.
        model: The name of the model.
        layers: A digest of each layer's operators, by its name.
        step: Number of training steps so far.
        optimizer: The name of the optimizer; None without training.
        learning_rate: The learning rate of the next step; None without training.
        loss_scale: The scale of the next loss, and the steps since it changed; None except in fp16.
        weights: Parameters and buffers by name.
        states: The optimizer's tensors, by the names of parameter and tensor; empty before the
            first step.
    """

    schema: str
    model: str
    layers: dict[str, str]
    step: int
    optimizer: str | None
    learning_rate: float | None
    loss_scale: tuple[float, int] | None
    weights: dict[str, torch.Tensor]
    states: dict[str, dict[str, torch.Tensor]]


_FIELDS = tuple(field.name for field in fields(Checkpoint))
_STORED_NAMES = (
    ("state_output=CellOutput(", "places=CellPlaces("),
    (", passes_previous=", ", keeps="),
)
"""Names of classes and fields in `repr` of layers, with the names that schema 1 digests."""


def compute_digests(model: Model) -> dict[str, str]:
    """Return a digest of each layer's operators and their sizes, without weights."""
    return {layer.name: _digest_layer(layer) for layer in model.layers}


def _digest_layer(layer: Layer) -> str:
    text = repr(layer)
    # The digests of existing files must stay valid when a class or field is renamed.
    for name, stored_name in _STORED_NAMES:
        text = text.replace(name, stored_name)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint file atomically.

    Raises:
        CannotRunError: The file cannot be written; an existing one is unchanged.
    """
    content = {name: getattr(checkpoint, name) for name in _FIELDS}
    write_atomically(path, lambda file: torch.save(content, file))


def write_atomically(path: Path, save: Callable[[BinaryIO], object]) -> None:
    """Write a temporary file in the same folder, and rename it once it is on disk.

    Args:
        path: The file.
        save: Writes its content.

    Raises:
        CannotRunError: The file cannot be written; an existing one is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            save(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync(path.parent)
    except (OSError, RuntimeError) as error:
        raise _unwritable(path, error) from None
    finally:
        if temporary.exists():
            temporary.unlink()


def check_writable(path: Path) -> None:
    """Check that a checkpoint can be written in the folder of a path.

    Raises:
        CannotRunError: There is no such folder, or it is not writable.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError | RuntimeError) -> CannotRunError:
    reason = error.strerror if isinstance(error, OSError) else error
    return CannotRunError(
        f"{path} cannot be written ({reason}): is there a folder {path.parent} with room in it?"
    )


def _sync(folder: Path) -> None:
    """Wait until the names of a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> Checkpoint:
    """Return the checkpoint of a file.

    Its tensors are mapped, and read when they are used.

    Raises:
        CannotRunError: There is no such file, or it is not a checkpoint.
    """
    if not path.is_file():
        raise CannotRunError(
            f"there is no checkpoint {path}: all hosts must see it under this name"
        )
    try:
        content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError):
        # Torch's message has several lines about its readers and their options.
        raise CannotRunError(
            f"{path} cannot be read as a checkpoint: it is cut off, damaged or another kind of "
            "file; take an earlier one"
        ) from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, str):
        raise CannotRunError(f"{path} is no checkpoint of spbench: it names no schema")
    if schema != SCHEMA or content.keys() != set(_FIELDS):
        raise CannotRunError(
            f"{path} is a checkpoint of another version: its schema is {schema}, not {SCHEMA}"
        )
    return Checkpoint(**content)


def check_model(path: Path, checkpoint: Checkpoint, model: Model) -> None:
    """Check that a checkpoint is of this model.

    Raises:
        CannotRunError: The model, or a layer of it, differs.
    """
    expected = compute_digests(model)
    if checkpoint.layers == expected:
        return
    if checkpoint.model != model.name:
        raise CannotRunError(f"{path} holds {checkpoint.model}, and this is {model.name}")
    different_layer = next(
        name
        for name in (*expected, *checkpoint.layers)
        if expected.get(name) != checkpoint.layers.get(name)
    )
    raise CannotRunError(
        f"{path} holds {model.name} with other settings (its layer {different_layer} differs): "
        "take those that it was learnt with"
    )


def check_tensors(path: Path, tensors: NamedTensors, expected: NamedTensors) -> None:
    """Check that a checkpoint has tensors of the expected names and shapes.

    Raises:
        CannotRunError: A tensor is missing or of another shape; the message names the first one.
    """
    for name, tensor in expected.items():
        if name not in tensors:
            raise CannotRunError(f"{path} has no {name}: it is not whole; take another one")
        if tensors[name].shape != tensor.shape:
            raise CannotRunError(
                f"{path} has {name} of shape {tuple(tensors[name].shape)}, and this model's is "
                f"{tuple(tensor.shape)}: is image_size that of the checkpoint?"
            )


def check_states(
    path: Path, checkpoint: Checkpoint, optimizer: str, parameters: Mapping[str, Any]
) -> None:
    """Check that an optimizer can continue from a checkpoint.

    Raises:
        CannotRunError: The checkpoint is of another optimizer, or lacks the state of a parameter.
    """
    if checkpoint.optimizer is None:
        raise CannotRunError(f"{path} was not written while learning: it has weights alone")
    if checkpoint.optimizer != optimizer:
        raise CannotRunError(
            f"{path} was learnt by {checkpoint.optimizer}, not by {optimizer}: "
            f"set optimizer to {checkpoint.optimizer}"
        )
    if not checkpoint.states:
        return
    for name, parameter in parameters.items():
        state = checkpoint.states.get(name)
        if state is None:
            raise CannotRunError(f"{path} has no state of {optimizer} for {name}: take another one")
        for state_name, tensor in state.items():
            if tensor.ndim and tensor.shape != parameter.shape:
                raise CannotRunError(
                    f"{path} has {state_name} of {name} in shape {tuple(tensor.shape)}, not "
                    f"{tuple(parameter.shape)}: take another one"
                )
