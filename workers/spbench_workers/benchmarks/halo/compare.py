"""Comparison of pixels and gradients with references, and checks without them.

The checks without a reference run on the tile's device. They find values anywhere in a tile that no
rounding explains, such as NaN. If only boxes of a large tile are compared with a reference, a wrong
value that looks plausible is found only in these boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from spbench_core.layout.tiles import Box
from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.verify.worst_error import WorstError


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest error that rounding explains, in part relative to the largest value."""

    absolute: float = 0.0
    relative: float = 0.0

    def max_error(self, values: torch.Tensor) -> float:
        """Return the largest error allowed for these values."""
        return self.absolute + self.relative * float(values.abs().max() if values.numel() else 0.0)


@dataclass(frozen=True, slots=True)
class Tolerances:
    """The tolerances of outputs, input gradients and parameter gradients."""

    output: Tolerance
    input_gradient: Tolerance
    parameter_gradient: Tolerance


def compare_pixels(
    actual: torch.Tensor, expected: torch.Tensor, box: Box, tolerance: float = 0.0
) -> WorstError:
    """Compare pixel by pixel; the detail names the first wrong pixel of the image.

    Args:
        actual: ``batch x channels x box.height x box.width``, on the CPU.
        expected: The expected pixels, of the same shape.
        box: The pixels that they hold.
        tolerance: The largest difference that is allowed; with 0 values must be equal.
    """
    same = tolerance == 0.0 and actual.dtype == expected.dtype and torch.equal(actual, expected)
    if same or actual.numel() == 0:
        return WorstError.single(0.0, tolerance)
    error = (actual.double() - expected.double()).abs()
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
        f"{float(actual[image, channel, row, col]):g}, "
        f"not {float(expected[image, channel, row, col]):g}",
    )


def compare_values(
    name: str, actual: torch.Tensor, expected: torch.Tensor, tolerance: float
) -> WorstError:
    """Compare tensors other than images; the detail has the first wrong index."""
    error = (actual.double().cpu() - expected.double()).abs()
    wrong = ~(error <= tolerance)
    largest = float(error.max())
    if not bool(wrong.any()):
        return WorstError.single(largest, tolerance)
    index = tuple(int(position) for position in wrong.nonzero()[0])
    return WorstError.single(
        largest,
        tolerance,
        f"{int(wrong.sum())} of {wrong.numel()} values of {name} are wrong, the first at "
        f"{list(index)}: {float(actual[index]):g}, not {float(expected[index]):g}",
    )


def compare_boxes(
    actual: torch.Tensor,
    tile: Box,
    expected: Sequence[tuple[Box, torch.Tensor]],
    tolerance: Tolerance,
) -> WorstError:
    """Compare boxes of a rank's values, all with the tolerance of the largest value."""
    allowed = find_max_error(expected, tolerance)
    worst = WorstError(tolerance=allowed, keeps_first=True)
    for box, values in expected:
        worst.merge(compare_pixels(view_box(actual, tile, box).cpu(), values, box, allowed))
    return worst


def find_max_error(expected: Sequence[tuple[Box, torch.Tensor]], tolerance: Tolerance) -> float:
    """Return the largest error that is allowed in any of the boxes."""
    return max((tolerance.max_error(values) for _, values in expected), default=0.0)


_PART = 1 << 24
"""Values checked at once, which bounds the memory of the check on the device."""

Distance = Callable[[torch.Tensor], torch.Tensor]
"""Distances of values, ``channels x rows x cols``, from valid ones; NaN if not finite."""


def check_whole_tile(
    actual: torch.Tensor, tile: Box, tolerance: float, *, whole_numbers: bool
) -> WorstError:
    """Find values that are not finite, or not whole numbers.

    Args:
        actual: ``batch x channels x tile.height x tile.width``.
        tile: The box of their pixels.
        tolerance: The allowed distance from a whole number.
        whole_numbers: Whether values must be whole numbers instead of only finite.
    """
    if whole_numbers:
        return _find_farthest(actual, tile, tolerance, _distance_to_whole, "no whole number")
    return _find_farthest(actual, tile, tolerance, _distance_to_finite, "no finite number")


def check_unreached_pixels(
    actual: torch.Tensor, tile: Box, tolerance: float, reached: Sequence[Box]
) -> WorstError:
    """Find values outside given boxes that are not zero.

    Args:
        actual: ``batch x channels x tile.height x tile.width``.
        tile: The box of their pixels.
        tolerance: The allowed distance from zero: fast algorithms leave residues in pixels
            next to a box.
        reached: Boxes in which values may be anything.
    """
    within = torch.zeros((1, 1, *tile.shape), dtype=torch.bool)
    for box in reached:
        shared = box.intersect(tile)
        if not shared.empty:
            view_box(within, tile, shared).fill_(True)
    outside = (~within[0]).to(actual.device)

    def from_zero(values: torch.Tensor) -> torch.Tensor:
        return values.abs() * outside

    return _find_farthest(actual, tile, tolerance, from_zero, "and nothing reaches it")


def _distance_to_whole(values: torch.Tensor) -> torch.Tensor:
    return (values - values.round()).abs()


def _distance_to_finite(values: torch.Tensor) -> torch.Tensor:
    return values * 0


def _find_farthest(
    actual: torch.Tensor, tile: Box, tolerance: float, distance: Distance, problem: str
) -> WorstError:
    if actual.numel() == 0:
        return WorstError.single(0.0, tolerance)
    step = max(1, _PART // (tile.height * tile.width))
    parts = [
        (index, first, image[first : first + step])
        for index, image in enumerate(actual.detach())
        for first in range(0, image.shape[0], step)
    ]
    # One copy to the host waits for the device only once. A NaN is the largest of all.
    largest = torch.stack([distance(values).amax() for _, _, values in parts]).cpu().double()
    error = float(largest.max())
    wrong = ~(largest <= tolerance)
    if not bool(wrong.any()):
        return WorstError.single(error, tolerance)
    index, first, values = parts[int(wrong.nonzero()[0])]
    channel, row, col = (
        int(position) for position in (~(distance(values) <= tolerance)).nonzero()[0]
    )
    return WorstError.single(
        error,
        tolerance,
        f"row {tile.rows[0] + row}, col {tile.cols[0] + col} (image {index}, channel "
        f"{first + channel}) is {float(values[channel, row, col]):g}, {problem}",
    )
