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
    errors = (actual.double() - expected.double()).abs()
    is_wrong = ~(errors <= tolerance)
    wrong_count = int(is_wrong.sum())
    max_error = float(errors.max())
    if wrong_count == 0:
        return WorstError.single(max_error, tolerance)
    image, channel, row, col = (int(index) for index in is_wrong.nonzero()[0])
    return WorstError.single(
        max_error,
        tolerance,
        f"{wrong_count} of {is_wrong.numel()} values are wrong, the first at "
        f"row {box.rows[0] + row}, col {box.cols[0] + col} (image {image}, channel {channel}): "
        f"{float(actual[image, channel, row, col]):g}, "
        f"not {float(expected[image, channel, row, col]):g}",
    )


def compare_values(
    name: str, actual: torch.Tensor, expected: torch.Tensor, tolerance: float
) -> WorstError:
    """Compare tensors other than images; the detail has the first wrong index."""
    errors = (actual.double().cpu() - expected.double()).abs()
    is_wrong = ~(errors <= tolerance)
    max_error = float(errors.max())
    if not bool(is_wrong.any()):
        return WorstError.single(max_error, tolerance)
    index = tuple(int(position) for position in is_wrong.nonzero()[0])
    return WorstError.single(
        max_error,
        tolerance,
        f"{int(is_wrong.sum())} of {is_wrong.numel()} values of {name} are wrong, the first at "
        f"{list(index)}: {float(actual[index]):g}, not {float(expected[index]):g}",
    )


def compare_boxes(
    actual: torch.Tensor,
    tile: Box,
    expected: Sequence[tuple[Box, torch.Tensor]],
    tolerance: Tolerance,
) -> WorstError:
    """Compare boxes of a rank's values, all with the tolerance of the largest value."""
    max_error = find_max_error(expected, tolerance)
    worst = WorstError(tolerance=max_error, keeps_first=True)
    for box, values in expected:
        worst.merge(compare_pixels(view_box(actual, tile, box).cpu(), values, box, max_error))
    return worst


def find_max_error(expected: Sequence[tuple[Box, torch.Tensor]], tolerance: Tolerance) -> float:
    """Return the largest error that is allowed in any of the boxes."""
    return max((tolerance.max_error(values) for _, values in expected), default=0.0)


VALUES_AT_ONCE = 1 << 24
"""Values checked at once, which bounds the memory of the check on the device."""

Distance = Callable[[torch.Tensor], torch.Tensor]
"""Distances of values, ``channels x rows x cols``, from valid ones; NaN if not finite."""


def check_whole_tile(
    actual: torch.Tensor,
    tile: Box,
    tolerance: float,
    *,
    whole_numbers: bool,
    values_at_once: int = VALUES_AT_ONCE,
) -> WorstError:
    """Find values that are not finite, or not whole numbers.

    Args:
        actual: ``batch x channels x tile.height x tile.width``.
        tile: The box of their pixels.
        tolerance: The allowed distance from a whole number.
        whole_numbers: Whether values must be whole numbers instead of only finite.
        values_at_once: Values checked at once.
    """
    distance, problem = (
        (_distance_to_whole, "no whole number")
        if whole_numbers
        else (_distance_to_finite, "no finite number")
    )
    return _find_farthest(actual, tile, tolerance, distance, problem, values_at_once)


def check_unreached_pixels(
    actual: torch.Tensor,
    tile: Box,
    tolerance: float,
    reached: Sequence[Box],
    *,
    values_at_once: int = VALUES_AT_ONCE,
) -> WorstError:
    """Find values outside given boxes that are not zero.

    Args:
        actual: ``batch x channels x tile.height x tile.width``.
        tile: The box of their pixels.
        tolerance: The allowed distance from zero: fast algorithms leave residues in pixels
            next to a box.
        reached: Boxes in which values may be anything.
        values_at_once: Values checked at once.
    """
    is_reached = torch.zeros((1, 1, *tile.shape), dtype=torch.bool)
    for box in reached:
        reached_part = box.intersect(tile)
        if not reached_part.empty:
            view_box(is_reached, tile, reached_part).fill_(True)
    is_unreached = (~is_reached[0]).to(actual.device)

    def from_zero(values: torch.Tensor) -> torch.Tensor:
        return values.abs() * is_unreached

    problem = "and nothing reaches it"
    return _find_farthest(actual, tile, tolerance, from_zero, problem, values_at_once)


def _distance_to_whole(values: torch.Tensor) -> torch.Tensor:
    return (values - values.round()).abs()


def _distance_to_finite(values: torch.Tensor) -> torch.Tensor:
    return values * 0


def _find_farthest(
    actual: torch.Tensor,
    tile: Box,
    tolerance: float,
    distance: Distance,
    problem: str,
    values_at_once: int,
) -> WorstError:
    if actual.numel() == 0:
        return WorstError.single(0.0, tolerance)
    channels_at_once = max(1, values_at_once // (tile.height * tile.width))
    channel_groups = [
        (image_index, first_channel, image[first_channel : first_channel + channels_at_once])
        for image_index, image in enumerate(actual.detach())
        for first_channel in range(0, image.shape[0], channels_at_once)
    ]
    # One copy to the host waits for the device only once. A NaN is the largest of all.
    max_distances = (
        torch.stack([distance(values).amax() for _, _, values in channel_groups]).cpu().double()
    )
    max_distance = float(max_distances.max())
    is_wrong = ~(max_distances <= tolerance)
    if not bool(is_wrong.any()):
        return WorstError.single(max_distance, tolerance)
    image_index, first_channel, values = channel_groups[int(is_wrong.nonzero()[0])]
    channel, row, col = (
        int(position) for position in (~(distance(values) <= tolerance)).nonzero()[0]
    )
    return WorstError.single(
        max_distance,
        tolerance,
        f"row {tile.rows[0] + row}, col {tile.cols[0] + col} (image {image_index}, channel "
        f"{first_channel + channel}) is {float(values[channel, row, col]):g}, {problem}",
    )
