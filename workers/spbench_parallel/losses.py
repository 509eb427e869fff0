"""Losses of logits, over whole images or over tiles, and their sums over an epoch.

The loss of an image is its cross entropy; in segmentation, the mean over its pixels. Or it is one
minus its soft Dice coefficient, averaged over classes (Milletari et al., "V-Net", 2016). That uses
sums, not sums of squares, and adds one to numerator and denominator, so that a class that is absent
from both prediction and target has a coefficient of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from mpi4py import MPI
from torch.nn import functional

from spbench_parallel.spatial.gradients import differentiable_sum

CROSS_ENTROPY = "cross_entropy"
DICE = "dice"
MAX_PENDING_VALUES = 512
"""Values that a running sum keeps before it adds them: one call then, and no launch per step."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of logits: the sum over images of this rank's share.

    Attributes:
        name: ``cross_entropy`` or ``dice``.
        pixels: Pixels per image that have a class; 1 if the image has one class.
        tiles: The ranks with the other pixels of the images, which compute the loss together; None
            if this rank has whole images.
    """

    name: str = CROSS_ENTROPY
    pixels: int = 1
    tiles: MPI.Intracomm | None = None

    def compute(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss.

        Args:
            logits: ``images x classes``, or ``images x classes x rows x cols``.
            targets: The classes: ``images``, or ``images x rows x cols``.
        """
        if self.name == DICE:
            return self._compute_dice(logits, targets)
        return functional.cross_entropy(logits, targets, reduction="sum") / self.pixels

    def count_correct(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the number of images that are classified correctly.

        Their class has the largest logit. In segmentation, each image counts as the share of such
        pixels.
        """
        return (logits.argmax(1) == targets).sum() / self.pixels

    def _compute_dice(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        probabilities = logits.softmax(1)
        target_one_hot = functional.one_hot(targets, logits.shape[1]).movedim(3, 1)
        overlap_and_total = torch.stack(
            (probabilities * target_one_hot, probabilities + target_one_hot)
        ).sum((3, 4))
        overlap, total = self.sum_over_tiles(overlap_and_total)
        # Each rank has an equal part of the loss: gradients summed over ranks are then the whole.
        rank_count = 1 if self.tiles is None else self.tiles.size
        coefficients: torch.Tensor = (2 * overlap + 1) / (total + 1)
        return (1 - coefficients).mean(1).sum() / rank_count

    def sum_over_tiles(self, local: torch.Tensor) -> torch.Tensor:
        """Return sums over whole images, from this rank's sums over its pixels."""
        return local if self.tiles is None else differentiable_sum(self.tiles, local)


class RunningSum:
    """The sum of single values of a device, in float64.

    It waits for the device only when it is read.

    Args:
        max_pending: The number of values above which those so far are added up.
    """

    def __init__(self, max_pending: int = MAX_PENDING_VALUES) -> None:
        self._max_pending = max_pending
        self._values: list[torch.Tensor] = []

    def add(self, values: Iterable[torch.Tensor]) -> None:
        """Add values without axes, on their device."""
        self._values.extend(values)
        if len(self._values) > self._max_pending:
            self._values = [self._sum()]

    def clear(self) -> None:
        """Reset the sum to zero."""
        self._values = []

    def read(self) -> float:
        """Return the sum so far; this waits for the device."""
        return float(self._sum()) if self._values else 0.0

    def _sum(self) -> torch.Tensor:
        return torch.stack([value.to(torch.float64) for value in self._values]).sum()
