"""Sliding windows of convolutions and pools: the inputs that an output reads.

A window has ``kernel`` taps at a distance of ``dilation``. It moves by ``stride`` over an axis that
is padded by ``padding`` on both sides. Output ``o`` reads the inputs from ``o * stride - padding``
to ``o * stride - padding + dilation * (kernel - 1)``; those outside ``[0, n)`` are padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spbench_core.layout.tiles import Box, Interval

Pair = int | tuple[int, int]
"""Rows and columns, or one number for both."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window along one axis."""

    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def span(self) -> int:
        """The number of inputs from the first tap to the last, inclusive."""
        return self.dilation * (self.kernel - 1) + 1

    def count_outputs(self, length: int) -> int:
        """Return the number of outputs of an axis of ``length`` inputs.

        Raises:
            ValueError: The window is larger than the padded axis.
        """
        padded_length = length + 2 * self.padding
        if self.span > padded_length:
            raise ValueError(
                f"a kernel that spans {self.span} pixels is larger than {length} pixels "
                f"with padding {self.padding} on both sides"
            )
        return (padded_length - self.span) // self.stride + 1

    def find_inputs(self, outputs: Interval) -> Interval:
        """Return the inputs that an interval of outputs reads, including padding.

        The interval is empty if that of the outputs is empty.
        """
        first_output = outputs[0]
        last_output = outputs[1] - 1
        if last_output < first_output:
            return 0, 0
        first_input = first_output * self.stride - self.padding
        return first_input, last_output * self.stride - self.padding + self.span

    def find_outputs(self, inputs: Interval) -> Interval:
        """Return the outputs that read only from an interval of inputs; it may be empty."""
        first_output = -(-(inputs[0] + self.padding) // self.stride)
        last_output = (inputs[1] + self.padding - self.span) // self.stride
        return first_output, max(first_output, last_output + 1)


@dataclass(frozen=True, slots=True)
class Window2d:
    """A window over an image: ``rows`` along its height and ``cols`` along its width."""

    rows: Window
    cols: Window

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the output for an image of some size.

        Raises:
            ValueError: The window is larger than the padded image.
        """
        return self.rows.count_outputs(height), self.cols.count_outputs(width)

    def find_inputs(self, outputs: Box) -> Box:
        """Return the pixels that a box of outputs reads, including padding."""
        if outputs.empty:
            return Box((0, 0), (0, 0))
        return Box(self.rows.find_inputs(outputs.rows), self.cols.find_inputs(outputs.cols))

    @property
    def is_pointwise(self) -> bool:
        """Whether each output reads only the input at the same position (1x1, stride 1)."""
        return all(
            (axis.kernel, axis.stride, axis.padding) == (1, 1, 0) for axis in (self.rows, self.cols)
        )


def expand_pair(value: int | Sequence[int]) -> tuple[int, int]:
    """Return the numbers of rows and of columns; a single number counts for both."""
    if isinstance(value, int):
        return value, value
    rows, cols = value
    return rows, cols
