"""Shares of a rank's memory in a model: activations, parameters, and buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from spbench_parallel.engine import Engine


class Activations:
    """The activations of a rank: tensors that autograd saves for backward.

    Tensors that share a storage count once, with the whole storage.

    Args:
        stages: The modules with the parameters to leave out.

    Attributes:
        peak: The largest number of bytes saved at once during `count`; None before.
    """

    def __init__(self, stages: Iterable[nn.Module]) -> None:
        self.peak: int | None = None
        module_tensors = chain.from_iterable(
            (*stage.parameters(), *stage.buffers()) for stage in stages
        )
        self._parameter_storages = {_get_storage_key(tensor) for tensor in module_tensors}
        self._use_counts: Counter[int] = Counter()
        self._saved_bytes = 0

    @contextmanager
    def count(self) -> Iterator[None]:
        """Count the tensors that forward passes inside save."""
        self.peak = 0
        with torch.autograd.graph.saved_tensors_hooks(self._keep, _restore):
            yield

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor | _SavedTensor:
        storage = _get_storage_key(tensor)
        if storage in self._parameter_storages:
            return tensor
        return _SavedTensor(self, tensor, storage, tensor.untyped_storage().nbytes())

    def begin(self, storage: int, nbytes: int) -> None:
        """Count one more saved tensor in a storage."""
        self._use_counts[storage] += 1
        if self._use_counts[storage] == 1:
            self._saved_bytes += nbytes
            self.peak = max(self.peak or 0, self._saved_bytes)

    def end(self, storage: int, nbytes: int) -> None:
        """Count one saved tensor less in a storage."""
        self._use_counts[storage] -= 1
        if not self._use_counts[storage]:
            del self._use_counts[storage]
            self._saved_bytes -= nbytes


class _SavedTensor:
    """A tensor that autograd saved, counted until autograd releases it."""

    __slots__ = ("_activations", "_size", "_storage", "tensor")

    def __init__(
        self, activations: Activations, tensor: torch.Tensor, storage: int, size: int
    ) -> None:
        self.tensor = tensor
        self._activations = activations
        self._storage = storage
        self._size = size
        activations.begin(storage, size)

    def __del__(self) -> None:
        self._activations.end(self._storage, self._size)


def _get_storage_key(tensor: torch.Tensor) -> int:
    """Return an identifier of the tensor's storage, valid while a tensor in it exists."""
    key: int = tensor.untyped_storage()._cdata
    return key


def _restore(saved: torch.Tensor | _SavedTensor) -> torch.Tensor:
    return saved.tensor if isinstance(saved, _SavedTensor) else saved


def count_parameter_bytes(engine: Engine) -> int:
    """Return the bytes of weights, statistics, gradients and optimizer state."""
    tensors = [
        tensor
        for stage in engine.stages
        for parameter in stage.parameters()
        for tensor in (parameter, parameter.grad)
        if tensor is not None
    ]
    tensors += [buffer for stage in engine.stages for buffer in stage.buffers()]
    if engine.trainer is not None:
        states = engine.trainer.optimizer_states.values()
        tensors += [tensor for state in states for tensor in state.values()]
    return sum(tensor.nbytes for tensor in tensors)
