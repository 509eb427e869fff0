"""Dynamic loss scaling: gradients that fp16 would round to zero become large enough to be kept.

The loss is multiplied by a scale, and so are all gradients; before the update the weights' are
divided by it. Where a rank's gradients got too large for fp16, all ranks skip the step and halve
the scale; after many good steps they double it. Micikevicius et al., "Mixed Precision Training",
2018; the numbers are those of `torch.amp.GradScaler`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from mpi4py import MPI

START = 2.0**16
GOOD_STEPS = 2000
"""Steps without overflow, in a row, after which the scale doubles."""


class LossScale:
    """The dynamic scale of the loss, the same on all ranks.

    Args:
        world: The ranks that are trained together.

    Attributes:
        value: The factor of the next loss: a power of 2, which rounds nothing.
        good_steps: Steps without overflow since the scale last changed.
        skipped_steps: Steps skipped since the start.
    """

    def __init__(self, world: MPI.Intracomm) -> None:
        self.value = START
        self.good_steps = self.skipped_steps = 0
        self._world = world

    def unscale(self, gradients: Iterable[torch.Tensor]) -> bool:
        """Divide gradients by the scale; return whether all ranks' are finite.

        The scale is then that of the next step. All ranks must call it together.
        """
        signs = []
        for gradient in gradients:
            signs.append(gradient.isfinite().all())
            gradient.mul_(1.0 / self.value)
        # One wait for the device, which MPI needs to tell all ranks.
        finite = self._world.allreduce(bool(torch.stack(signs).all()), op=MPI.LAND)
        if not finite:
            self.value /= 2.0
            self.good_steps = 0
            self.skipped_steps += 1
            return False
        self.good_steps += 1
        if self.good_steps == GOOD_STEPS:
            self.value *= 2.0
            self.good_steps = 0
        return True
