"""Shares of a rank's memory in a model: activations, parameters, and the buffers of messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from spbench_parallel.engine import Engine


class Activations:
    """The activations of a rank: what autograd keeps for backward passes, parameters left out.

    Tensors in the same memory count once, with all of it.

    Args:
        stages: The modules whose parameters are left out.

    Attributes:
        peak: The most bytes that were kept at once while they were counted; None before.
    """

    def __init__(self, stages: Iterable[nn.Module]) -> None:
        self.peak: int | None = None
        own = chain.from_iterable((*stage.parameters(), *stage.buffers()) for stage in stages)
        self._parameters = {_place(tensor) for tensor in own}
        self._uses: Counter[int] = Counter()
        self._bytes = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what forward passes inside keep."""
        self.peak = 0
        with torch.autograd.graph.saved_tensors_hooks(self._keep, _kept):
            yield

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor | _Kept:
        place = _place(tensor)
        if place in self._parameters:
            return tensor
        return _Kept(self, tensor, place, tensor.untyped_storage().nbytes())

    def begin(self, place: int, count: int) -> None:
        """Count memory that one tensor more is kept in."""
        self._uses[place] += 1
        if self._uses[place] == 1:
            self._bytes += count
            self.peak = max(self.peak or 0, self._bytes)

    def end(self, place: int, count: int) -> None:
        """Count memory that one tensor less is kept in."""
        self._uses[place] -= 1
        if not self._uses[place]:
            del self._uses[place]
            self._bytes -= count


class _Kept:
    """A tensor that autograd keeps, counted until autograd lets it go."""

    __slots__ = ("_activations", "_count", "_place", "tensor")

    def __init__(
        self, activations: Activations, tensor: torch.Tensor, place: int, count: int
    ) -> None:
        self.tensor = tensor
        self._activations = activations
        self._place = place
        self._count = count
        activations.begin(place, count)

    def __del__(self) -> None:
        self._activations.end(self._place, self._count)


def _place(tensor: torch.Tensor) -> int:
    """Return what tensors in the same memory have in common, as long as one of them lives."""
    place: int = tensor.untyped_storage()._cdata
    return place


def _kept(one: torch.Tensor | _Kept) -> torch.Tensor:
    return one.tensor if isinstance(one, _Kept) else one


def parameter_bytes(engine: Engine) -> int:
    """Return the bytes of weights and running statistics, gradients and the optimizer's state."""
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
