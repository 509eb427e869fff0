"""What a rank gives and gets, each between margins that nobody may write to."""

from __future__ import annotations

import torch

from spbench_workers.errors import allocating

_MARGIN = 64
"""Elements of a margin: a multiple of a cache line of any format."""


class Buffers:
    """Source and result of a collective.

    Args:
        given: Elements that a rank gives.
        gotten: Elements that it gets.
        at: Where in the result, in place, is what the rank gives; None where not in place.
        dtype: Of both.
        device: Of both.

    Attributes:
        source: What the collective reads; the result itself, in place.
        result: Where the rank gets the outcome.
        given: What the rank gives: the source, or a part of it in place.
    """

    def __init__(
        self, given: int, gotten: int, at: int | None, dtype: torch.dtype, device: torch.device
    ) -> None:
        sizes = [given, gotten] if at is None else [max(given, gotten)]
        self._poison = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min
        with allocating(sum(sizes) * dtype.itemsize):
            self._wholes = [
                torch.full((size + 2 * _MARGIN,), self._poison, dtype=dtype, device=device)
                for size in sizes
            ]
        views = [whole[_MARGIN : len(whole) - _MARGIN] for whole in self._wholes]
        self.source, self.result = views[0], views[-1]
        self.given = self.source if at is None else self.source[at : at + given]

    @property
    def in_place(self) -> bool:
        """Whether the result takes the place of the source."""
        return self.source is self.result

    def poison(self) -> None:
        """Make a result of before wrong in every element; in place the source is to follow."""
        self.result.fill_(self._poison)

    def margins_written(self) -> int:
        """Return how many elements beside source and result are not what they were."""
        return sum(
            int((~self._is_poison(margin)).sum())
            for whole in self._wholes
            for margin in (whole[:_MARGIN], whole[-_MARGIN:])
        )

    def _is_poison(self, values: torch.Tensor) -> torch.Tensor:
        return values.isnan() if values.is_floating_point() else values == self._poison
