"""Comparisons of pixels and other values with their references."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from spbench_core.layout.tiles import Box
from spbench_parallel.spatial.exchange import view_box
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


_PART = 1 << 24
"""Values that are checked at once: a bound of the memory that the check takes on the device."""

Distance = Callable[[torch.Tensor], torch.Tensor]
"""The distances of values, ``channels x rows x cols``, from right ones; NaN if not finite."""


def check_whole_tile(
    got: torch.Tensor, tile: Box, tolerance: float, *, whole_numbers: bool
) -> WorstError:
    """Find values that are not finite, or no whole numbers.

    Args:
        got: ``batch x channels x tile.height x tile.width``.
        tile: The box of their pixels.
        tolerance: The allowed distance from a whole number.
        whole_numbers: Whether they must be whole numbers; else they only have to be finite.
    """
    if whole_numbers:
        return _farthest(got, tile, tolerance, _to_whole_number, "no whole number")
    return _farthest(got, tile, tolerance, _to_finite, "no finite number")


def check_unreached_pixels(
    got: torch.Tensor, tile: Box, tolerance: float, reached: Sequence[Box]
) -> WorstError:
    """Find values that are not zero outside given boxes.

    Args:
        got: ``batch x channels x tile.height x tile.width``.
        tile: The box of their pixels.
        tolerance: The allowed distance from zero: fast algorithms leave rests in pixels beside.
        reached: Boxes in which values may be anything.
    """
    within = torch.zeros((1, 1, *tile.shape), dtype=torch.bool)
    for box in reached:
        shared = box.intersect(tile)
        if not shared.empty:
            view_box(within, tile, shared).fill_(True)
    outside = (~within[0]).to(got.device)

    def from_zero(values: torch.Tensor) -> torch.Tensor:
        return values.abs() * outside

    return _farthest(got, tile, tolerance, from_zero, "and nothing reaches it")


def _to_whole_number(values: torch.Tensor) -> torch.Tensor:
    return (values - values.round()).abs()


def _to_finite(values: torch.Tensor) -> torch.Tensor:
    return values * 0


def _farthest(
    got: torch.Tensor, tile: Box, tolerance: float, distance: Distance, what: str
) -> WorstError:
    if got.numel() == 0:
        return WorstError.single(0.0, tolerance)
    step = max(1, _PART // (tile.height * tile.width))
    parts = [
        (index, first, image[first : first + step])
        for index, image in enumerate(got.detach())
        for first in range(0, image.shape[0], step)
    ]
    # The device is waited for once. A NaN is the largest of all.
    largest = torch.stack([distance(values).amax() for _, _, values in parts]).cpu().double()
    error = float(largest.max())
    wrong = ~(largest <= tolerance)
    if not bool(wrong.any()):
        return WorstError.single(error, tolerance)
    index, first, values = parts[int(wrong.nonzero()[0])]
    channel, row, col = (int(at) for at in (~(distance(values) <= tolerance)).nonzero()[0])
    return WorstError.single(
        error,
        tolerance,
        f"row {tile.rows[0] + row}, col {tile.cols[0] + col} (image {index}, channel "
        f"{first + channel}) is {float(values[channel, row, col]):g}, {what}",
    )
