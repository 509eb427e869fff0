"""A sum over many steps of single values on a device, which nobody waits for until it is read."""

from __future__ import annotations

from collections.abc import Iterable

import torch

_MOST = 512
"""Values that are kept apart: added up in one call, they take no launch a step."""


class RunningSum:
    """The sum of single values, in float64."""

    def __init__(self) -> None:
        self._values: list[torch.Tensor] = []

    def add(self, values: Iterable[torch.Tensor]) -> None:
        """Add values, of no axis, as they are on their device."""
        self._values.extend(values)
        if len(self._values) > _MOST:
            self._values = [self._sum()]

    def clear(self) -> None:
        """Begin anew."""
        self._values = []

    def read(self) -> float:
        """Return the sum so far: this waits for the device."""
        return float(self._sum()) if self._values else 0.0

    def _sum(self) -> torch.Tensor:
        return torch.stack([value.to(torch.float64) for value in self._values]).sum()
