"""Dynamic loss scaling, which keeps gradients that fp16 would round to zero.

The loss is multiplied by a scale, and so are all gradients. Before the update, those of the weights
are divided by it. If a rank's gradients were too large for fp16, all ranks skip the step and halve
the scale. After many good steps they double it (Micikevicius et al., "Mixed Precision Training",
2018). The numbers are those of ``torch.amp.GradScaler``.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from mpi4py import MPI

INITIAL_SCALE = 2.0**16
"""The initial scale."""
GOOD_STEPS = 2000
"""Consecutive steps without overflow after which the scale doubles."""


class LossScale:
    """The dynamic scale of the loss, the same on all ranks.

    Args:
        world: The ranks that are trained together.

    Attributes:
        value: The factor of the next loss: a power of 2, so that scaling does not round.
        good_steps: Steps without overflow since the scale last changed.
        skipped_steps: Steps skipped since the start.
    """

    def __init__(self, world: MPI.Intracomm) -> None:
        self.value = INITIAL_SCALE
        self.good_steps = self.skipped_steps = 0
        self._world = world

    def unscale(self, gradients: Iterable[torch.Tensor]) -> bool:
        """Divide gradients by the scale; return whether they are finite on all ranks.

        The scale is then that of the next step. All ranks must call it together.
        """
        finite_by_gradient = []
        for gradient in gradients:
            finite_by_gradient.append(gradient.isfinite().all())
            gradient.mul_(1.0 / self.value)
        # All gradients together: one wait for the device, before MPI combines the ranks' answers.
        all_finite = self._world.allreduce(bool(torch.stack(finite_by_gradient).all()), op=MPI.LAND)
        if not all_finite:
            self.value /= 2.0
            self.good_steps = 0
            self.skipped_steps += 1
            return False
        self.good_steps += 1
        if self.good_steps == GOOD_STEPS:
            self.value *= 2.0
            self.good_steps = 0
        return True
