"""Comparisons of results with what is expected, and the worst of several."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from spbench_core.layout.tiles import Box


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The error of a result with its tolerance; ``detail`` names the first wrong value.

    A NaN is wrong whatever the tolerance.
    """

    error: float = 0.0
    tolerance: float = 0.0
    detail: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the result is out of tolerance."""
        return not self.error <= self.tolerance

    def worse(self, other: Mismatch) -> Mismatch:
        """Return the first of the two that is wrong, or else the one with the larger error."""
        if self.wrong or other.wrong:
            return self if self.wrong else other
        return self if self.error >= other.error else other


def compare_pixels(
    got: torch.Tensor, expected: torch.Tensor, box: Box, tolerance: float = 0.0
) -> Mismatch:
    """Compare pixel by pixel; the detail names the first wrong one in the image's coordinates.

    Args:
        got: ``batch x channels x box.height x box.width``, on the CPU.
        expected: The expected pixels, of the same shape.
        box: The pixels that they hold.
        tolerance: The largest difference that is allowed; with 0 values must be equal.
    """
    same = tolerance == 0.0 and got.dtype == expected.dtype and torch.equal(got, expected)
    if same or got.numel() == 0:
        return Mismatch(tolerance=tolerance)
    error = (got.double() - expected.double()).abs()
    wrong = ~(error <= tolerance)
    count = int(wrong.sum())
    largest = float(error.max())
    if count == 0:
        return Mismatch(largest, tolerance)
    image, channel, row, col = (int(index) for index in wrong.nonzero()[0])
    return Mismatch(
        largest,
        tolerance,
        f"{count} of {wrong.numel()} values are wrong, the first at row {box.rows[0] + row}, "
        f"col {box.cols[0] + col} (image {image}, channel {channel}): "
        f"{float(got[image, channel, row, col]):g}, "
        f"not {float(expected[image, channel, row, col]):g}",
    )


def compare_values(
    name: str, got: torch.Tensor, expected: torch.Tensor, tolerance: float
) -> Mismatch:
    """Compare tensors other than images; the detail names the first wrong value by its index."""
    error = (got.double().cpu() - expected.double()).abs()
    wrong = ~(error <= tolerance)
    largest = float(error.max())
    if not bool(wrong.any()):
        return Mismatch(largest, tolerance)
    index = tuple(int(place) for place in wrong.nonzero()[0])
    return Mismatch(
        largest,
        tolerance,
        f"{int(wrong.sum())} of {wrong.numel()} values of {name} are wrong, the first at "
        f"{list(index)}: {float(got[index]):g}, not {float(expected[index]):g}",
    )
