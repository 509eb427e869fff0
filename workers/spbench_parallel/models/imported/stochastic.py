"""Operators of chance: dropout and stochastic depth, drawn by position and seed.

What is dropped follows from the seed, the step, the operator, the image and the place in its map,
so that stages, tiles and replicas drop what one process drops. The reference is the user's own
module, whose draws are replaced while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from spbench_core.layout.tiles import Box
from spbench_parallel.images.random_bits import random_bits


@dataclass(frozen=True, slots=True)
class StochasticOp:
    """The share of numbers that an operator of chance drops, and in which units.

    Attributes:
        index: Its number among the network's operators of chance.
        share: The share that it drops.
        unit: Single values (``value``), channels of an image (``channel``), or all of an image's
            (``image``).
    """

    index: int
    share: float
    unit: str


@dataclass(frozen=True, slots=True)
class DropBatch:
    """The images of a micro-batch in a step, whose draws they determine.

    Attributes:
        seed: The seed of the model.
        step: The step of training.
        images: Of each image its replica, and its number in the replica's step.
    """

    seed: int
    step: int
    images: tuple[tuple[int, int], ...]


class DropByPosition(nn.Module):
    """An operator of chance on a rank; in evaluation it gives what it gets.

    Args:
        chance: What it drops.
        shape: The shape of what it gets for one image.
        box: This rank's pixels, where it has a tile of a map; None: it has all of it.
        channels_last: Whether channels come after rows and columns.

    Attributes:
        drawn: The images of the next call. Without them torch draws, as where layers are timed.
    """

    def __init__(
        self,
        chance: StochasticOp,
        shape: Sequence[int],
        box: Box | None = None,
        *,
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        self._chance = chance
        self._shape = tuple(shape)
        self._box = box
        self._channels_last = channels_last
        self.batch: DropBatch | None = None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values, of which some are 0, and the others larger by as much."""
        if not self.training:
            return values
        if self.batch is None:
            return functional.dropout(values, self._chance.share)
        words = values, self._chance, self.batch, self._shape, self._box
        return apply_drop(*words, channels_last=self._channels_last)


def apply_drop(
    values: torch.Tensor,
    chance: StochasticOp,
    drawn: DropBatch,
    shape: tuple[int, ...],
    box: Box | None = None,
    *,
    channels_last: bool = False,
) -> torch.Tensor:
    """Return values of which a share is 0, and the others are larger by as much.

    Args:
        values: ``images x ...``.
        chance: What is dropped.
        drawn: The images.
        shape: The shape of a whole one's values.
        box: The pixels that are here, of a map; None: all of them.
        channels_last: Whether channels come after rows and columns.
    """
    here = box
    if box is not None and channels_last:
        here = Box(box.cols, (0, shape[-1]))  # rows are where channels are else
    keeps = _kept(chance, drawn, shape, here, values.device)
    if box is not None and channels_last and chance.unit == "value":
        keeps = keeps[:, slice(*box.rows)]
    kept = keeps.reshape(values.shape if chance.unit == "value" else _leading(keeps, values))
    return torch.where(kept, values / (1.0 - chance.share), 0.0)


def _leading(keeps: torch.Tensor, values: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of one number for each image, or for each of its channels."""
    sides = keeps.shape[:2] if keeps.shape[1] == values.shape[1] else keeps.shape[:1]
    return (*sides, *(1 for _ in range(values.dim() - len(sides))))


def _kept(
    chance: StochasticOp,
    drawn: DropBatch,
    shape: tuple[int, ...],
    box: Box | None,
    device: torch.device,
) -> torch.Tensor:
    """Return what is kept: a mask of maps ``images x channels x rows x cols``, or of less."""
    sides = _sides(chance.unit, shape)
    here = box if box is not None and chance.unit == "value" else Box((0, sides[1]), (0, sides[2]))
    words = drawn.seed, drawn.step, chance.index
    maps = [("chance", *words, *image) for image in drawn.images]
    bits = random_bits(maps, sides, here, device)
    # Of numbers that are alike from -2**31 on those below are as many as are dropped.
    return bits >= round(chance.share * 2**32) - 2**31


def _sides(unit: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, rows and columns of what is drawn for one image."""
    if unit == "image":
        return 1, 1, 1
    if unit == "channel":
        return shape[0], 1, 1
    if len(shape) >= 3:
        return prod(shape[:-2]), shape[-2], shape[-1]
    return (prod(shape), 1, 1)


def find_drops(module: nn.Module) -> list[DropByPosition]:
    """Return the operators of chance of a stage."""
    return [one for one in module.modules() if isinstance(one, DropByPosition)]


_DROPOUTS: dict[Callable[..., Any], str] = {
    functional.dropout: "value",
    torch.dropout: "value",
    functional.dropout2d: "channel",
}
"""torch's functions of chance, and what they drop."""


class DropByPositionMode(TorchFunctionMode):
    """A mode in which the user's own module drops what the ranks' operators of chance drop.

    torch's dropouts are replaced, and so are the random numbers of what drops whole images
    (``Tensor.bernoulli_``), call by call in the order of the network's operators.

    Args:
        drawn: The images of the forward pass.
    """

    def __init__(self, drawn: DropBatch) -> None:
        super().__init__()
        self._drawn = drawn
        self._calls = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        words = kwargs or {}
        if func in _DROPOUTS:
            values, share, training, inplace = _arguments(*args, **words)
            if not (training and share):
                return values
            chance = self._next(share, _DROPOUTS[func])
            kept = apply_drop(values, chance, self._drawn, tuple(values.shape[1:]))
            return values.copy_(kept) if inplace else kept
        if func is torch.Tensor.bernoulli_:
            noise = args[0]
            share = 1.0 - (args[1] if len(args) > 1 else words["p"])
            chance = self._next(share, "image")
            kept = _kept(chance, self._drawn, (1,), None, noise.device)
            return noise.copy_(kept.reshape(noise.shape))
        return func(*args, **words)

    def _next(self, share: float, unit: str) -> StochasticOp:
        chance = StochasticOp(self._calls, share, unit)
        self._calls += 1
        return chance


def _arguments(
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    train: bool | None = None,
) -> tuple[torch.Tensor, float, bool, bool]:
    """Return what one of torch's dropouts is given, by its own names."""
    return input, p, training if train is None else train, inplace
