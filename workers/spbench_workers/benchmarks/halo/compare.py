"""Comparisons of pixels and other values with their references."""

from __future__ import annotations

import torch

from spbench_core.layout.tiles import Box
from spbench_parallel.verify.worst_error import WorstError


def compare_pixels(
    got: torch.Tensor, expected: torch.Tensor, box: Box, tolerance: float = 0.0
) -> WorstError:
    """Compare pixel by pixel; the detail names the first wrong one in the image's coordinates.

    Args:
        got: ``batch x channels x box.height x box.width``, on the CPU.
        expected: The expected pixels, of the same shape.
        box: The pixels that they hold.
        tolerance: The largest difference that is allowed; with 0 values must be equal.
    """
    same = tolerance == 0.0 and got.dtype == expected.dtype and torch.equal(got, expected)
    if same or got.numel() == 0:
        return WorstError.single(0.0, tolerance)
    error = (got.double() - expected.double()).abs()
    wrong = ~(error <= tolerance)
    count = int(wrong.sum())
    largest = float(error.max())
    if count == 0:
        return WorstError.single(largest, tolerance)
    image, channel, row, col = (int(index) for index in wrong.nonzero()[0])
    return WorstError.single(
        largest,
        tolerance,
        f"{count} of {wrong.numel()} values are wrong, the first at row {box.rows[0] + row}, "
        f"col {box.cols[0] + col} (image {image}, channel {channel}): "
        f"{float(got[image, channel, row, col]):g}, "
        f"not {float(expected[image, channel, row, col]):g}",
    )


def compare_values(
    name: str, got: torch.Tensor, expected: torch.Tensor, tolerance: float
) -> WorstError:
    """Compare tensors other than images; the detail names the first wrong value by its index."""
    error = (got.double().cpu() - expected.double()).abs()
    wrong = ~(error <= tolerance)
    largest = float(error.max())
    if not bool(wrong.any()):
        return WorstError.single(largest, tolerance)
    index = tuple(int(place) for place in wrong.nonzero()[0])
    return WorstError.single(
        largest,
        tolerance,
        f"{int(wrong.sum())} of {wrong.numel()} values of {name} are wrong, the first at "
        f"{list(index)}: {float(got[index]):g}, not {float(expected[index]):g}",
    )
