"""Stochastic operators: dropout and stochastic depth, drawn by position and seed.

The dropped values are determined by the seed, the step, the operator, the image and the position in
its map. Therefore stages, tiles and replicas drop the same values as a single process. The
reference is the user's module, with its draws replaced while it runs.
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
from spbench_parallel.images.random_bits import draw_random_bits


@dataclass(frozen=True, slots=True)
class StochasticOp:
    """The share that a stochastic operator drops, and its unit.

    Attributes:
        index: Its index among the network's stochastic operators.
        share: The share that it drops.
        unit: Single values (``value``), channels of an image (``channel``), or whole images
            (``image``).
    """

    index: int
    share: float
    unit: str


@dataclass(frozen=True, slots=True)
class DropBatch:
    """The images of a micro-batch in a step, which determine its draws.

    Attributes:
        seed: The seed of the model.
        step: The step of training.
        images: The replica of each image, and its index in the replica's step.
    """

    seed: int
    step: int
    images: tuple[tuple[int, int], ...]


class DropByPosition(nn.Module):
    """A stochastic operator on a rank; in evaluation it returns its input.

    Args:
        op: The share and unit that it drops.
        shape: The shape of its output for one image.
        box: This rank's pixels, if it has a tile of a map; None if it has the whole map.
        channels_last: Whether channels come after rows and columns.

    Attributes:
        batch: The images of the next call. If it is None, torch draws, as when layers are timed.
    """

    def __init__(
        self,
        op: StochasticOp,
        shape: Sequence[int],
        box: Box | None = None,
        *,
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        self._op = op
        self._shape = tuple(shape)
        self._box = box
        self._channels_last = channels_last
        self.batch: DropBatch | None = None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values with a share set to 0, and the others scaled up."""
        if not self.training:
            return values
        if self.batch is None:
            return functional.dropout(values, self._op.share)
        arguments = values, self._op, self.batch, self._shape, self._box
        return apply_drop(*arguments, channels_last=self._channels_last)


def apply_drop(
    values: torch.Tensor,
    op: StochasticOp,
    batch: DropBatch,
    shape: tuple[int, ...],
    box: Box | None = None,
    *,
    channels_last: bool = False,
) -> torch.Tensor:
    """Return values with a share set to 0, and the others scaled up.

    Args:
        values: ``images x ...``.
        op: The share and unit to drop.
        batch: The images.
        shape: The shape of the values of a whole image.
        box: The pixels of a map that are present; None: all.
        channels_last: Whether channels come after rows and columns.
    """
    drawn_box = box
    if box is not None and channels_last:
        # The drawn axes are rows, cols and channels: this cuts cols, and the mask is cut below.
        drawn_box = Box(box.cols, (0, shape[-1]))
    mask = _draw_mask(op, batch, shape, drawn_box, values.device)
    if box is not None and channels_last and op.unit == "value":
        mask = mask[:, slice(*box.rows)]
    keep_mask = mask.reshape(values.shape if op.unit == "value" else _make_mask_shape(mask, values))
    return torch.where(keep_mask, values / (1.0 - op.share), 0.0)


def _make_mask_shape(mask: torch.Tensor, values: torch.Tensor) -> tuple[int, ...]:
    """Return the shape to broadcast one number per image, or per channel."""
    leading_sizes = mask.shape[:2] if mask.shape[1] == values.shape[1] else mask.shape[:1]
    return (*leading_sizes, *(1 for _ in range(values.dim() - len(leading_sizes))))


def _draw_mask(
    op: StochasticOp,
    batch: DropBatch,
    shape: tuple[int, ...],
    box: Box | None,
    device: torch.device,
) -> torch.Tensor:
    """Return the mask of kept values, ``images x channels x rows x cols`` or smaller."""
    drawn_shape = _make_drawn_shape(op.unit, shape)
    drawn_box = (
        box
        if box is not None and op.unit == "value"
        else Box((0, drawn_shape[1]), (0, drawn_shape[2]))
    )
    seed = batch.seed, batch.step, op.index
    map_keys = [("chance", *seed, *image) for image in batch.images]
    bits = draw_random_bits(map_keys, drawn_shape, drawn_box, device)
    # The bits are uniform from -2**31: this share of them is below the limit.
    return bits >= round(op.share * 2**32) - 2**31


def _make_drawn_shape(unit: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, rows and columns of the numbers drawn per image."""
    if unit == "image":
        return 1, 1, 1
    if unit == "channel":
        return shape[0], 1, 1
    if len(shape) >= 3:
        return prod(shape[:-2]), shape[-2], shape[-1]
    return (prod(shape), 1, 1)


def find_stochastic_operators(stage: nn.Module) -> list[DropByPosition]:
    """Return the stochastic operators of a stage."""
    return [part for part in stage.modules() if isinstance(part, DropByPosition)]


DROPOUT_UNITS: dict[Callable[..., Any], str] = {
    functional.dropout: "value",
    torch.dropout: "value",
    functional.dropout2d: "channel",
}
"""Torch's stochastic functions, and the unit that they drop."""


class DropByPositionMode(TorchFunctionMode):
    """A mode in which the user's module drops the same values as the ranks.

    It replaces torch's dropouts, and the random numbers of modules that drop whole images
    (``Tensor.bernoulli_``), in the order of the network's operators.

    Args:
        batch: The images of the forward pass.
    """

    def __init__(self, batch: DropBatch) -> None:
        super().__init__()
        self._batch = batch
        self._call_count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        arguments = kwargs or {}
        if func in DROPOUT_UNITS:
            values, share, training, inplace = _parse_arguments(*args, **arguments)
            if not (training and share):
                return values
            op = self._make_next_op(share, DROPOUT_UNITS[func])
            kept_values = apply_drop(values, op, self._batch, tuple(values.shape[1:]))
            return values.copy_(kept_values) if inplace else kept_values
        if func is torch.Tensor.bernoulli_:
            noise = args[0]
            share = 1.0 - (args[1] if len(args) > 1 else arguments["p"])
            op = self._make_next_op(share, "image")
            kept_values = _draw_mask(op, self._batch, (1,), None, noise.device)
            return noise.copy_(kept_values.reshape(noise.shape))
        return func(*args, **arguments)

    def _make_next_op(self, share: float, unit: str) -> StochasticOp:
        op = StochasticOp(self._call_count, share, unit)
        self._call_count += 1
        return op


def _parse_arguments(
    input: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    train: bool | None = None,
) -> tuple[torch.Tensor, float, bool, bool]:
    """Return the arguments of one of torch's dropouts."""
    return input, p, training if train is None else train, inplace
