"""Losses of logits, over whole images or over tiles.

The loss of an image is its cross entropy, of a segmentation the mean over its pixels; or one minus
its soft Dice coefficient, the mean over classes (Milletari et al., "V-Net", 2016; with both sums,
not their squares, and one added above and below, so that a class that is not there counts as told).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from mpi4py import MPI
from torch.nn import functional

from spbench_parallel.spatial.gradients import differentiable_sum

CROSS_ENTROPY = "cross_entropy"
DICE = "dice"


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of logits: the sum over images of this rank's share of each one's.

    Attributes:
        name: ``cross_entropy`` or ``dice``.
        pixels: Pixels of an image with a class each; 1 where it has one class.
        tiles: The ranks that have the other pixels of its images, which all compute it together;
            None: this rank has whole ones.
    """

    name: str = CROSS_ENTROPY
    pixels: int = 1
    tiles: MPI.Intracomm | None = None

    def of(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss.

        Args:
            logits: ``images x classes``, or ``images x classes x rows x cols``.
            targets: The classes: ``images``, or ``images x rows x cols``.
        """
        if self.name == DICE:
            return self._dice(logits, targets)
        return functional.cross_entropy(logits, targets, reduction="sum") / self.pixels

    def correct(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the images whose class has the largest logit, or the share of their pixels."""
        return (logits.argmax(1) == targets).sum() / self.pixels

    def _dice(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        shares = logits.softmax(1)
        wanted = functional.one_hot(targets, logits.shape[1]).movedim(3, 1)
        both = torch.stack((shares * wanted, shares + wanted)).sum((3, 4))
        overlap, total = self.whole_sums(both)
        # Each rank has a part of the loss, so that its gradient, summed over all, is the whole.
        ranks = 1 if self.tiles is None else self.tiles.size
        coefficients: torch.Tensor = (2 * overlap + 1) / (total + 1)
        return (1 - coefficients).mean(1).sum() / ranks

    def whole_sums(self, own: torch.Tensor) -> torch.Tensor:
        """Return sums over whole images, of this rank's over its own pixels."""
        return own if self.tiles is None else differentiable_sum(self.tiles, own)
