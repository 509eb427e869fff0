"""Boxes in a graph of operators that exchanges once.

From the owned pixels of the results backward, every operator needs a box of its inputs. If several
operators read a value, a rank needs the smallest box that contains all their needs. Boxes end at
the image border, where operators add their padding, and no value reaches beyond. Along an undivided
axis every box is complete.
"""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.layout.partition import EMPTY_BOX, Partition, Transfers
from spbench_core.layout.tiles import Box, Interval
from spbench_core.layout.window import Window, Window2d
from spbench_parallel.spatial.fused.chain import hull


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """An operator of a graph, with one output.

    Attributes:
        input_indices: The indices of the values that it reads.
        output_tiles: The tiles of its output.
        window: None for a pixelwise operator.
        statistics: Whether it computes statistics, and therefore reads all pixels that the rank
            owns.
    """

    input_indices: tuple[int, ...]
    output_tiles: Partition
    window: Window2d | None = None
    statistics: bool = False


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """Operators in the order in which all ranks run them.

    Values are numbered: first the inputs, then the outputs of the steps.

    Attributes:
        input_tiles: The tiles of each input.
        steps: The operators; each reads values with lower indices.
        output_indices: The indices of the values that are outputs.
    """

    input_tiles: tuple[Partition, ...]
    steps: tuple[OperatorStep, ...]
    output_indices: tuple[int, ...]

    @property
    def value_tiles(self) -> tuple[Partition, ...]:
        """The tiles of each value."""
        return *self.input_tiles, *(step.output_tiles for step in self.steps)


@dataclass(frozen=True, slots=True)
class InputCut:
    """The part of its input from which an operator with a window computes its outputs.

    Attributes:
        box: Pixels of its input, all in the image.
        padding: Rows and columns that the operator adds on both sides.
        uneven_padding: Padding added before the operator if the sides differ: columns before and
            after, then rows before and after.
    """

    box: Box
    padding: tuple[int, int]
    uneven_padding: tuple[int, int, int, int]


def cut_input(window: Window2d, input_tiles: Partition, output_box: Box) -> InputCut:
    """Return the part of the input from which outputs are computed.

    Args:
        window: The operator's window.
        input_tiles: The tiles of its input.
        output_box: Pixels of its output; not empty.
    """
    rows = _cut_axis(window.rows, input_tiles.grid.rows > 1, output_box.rows, input_tiles.height)
    cols = _cut_axis(window.cols, input_tiles.grid.cols > 1, output_box.cols, input_tiles.width)
    return InputCut(
        Box(rows.inside, cols.inside),
        (rows.padding, cols.padding),
        (*cols.uneven_padding, *rows.uneven_padding),
    )


def compute_value_boxes(graph: OperatorGraph, rank: int) -> tuple[Box, ...]:
    """Return the box of each value on a rank."""
    tiles_by_value = graph.value_tiles
    boxes = [EMPTY_BOX] * len(tiles_by_value)
    for index in graph.output_indices:
        boxes[index] = hull(boxes[index], tiles_by_value[index].tile(rank))
    input_count = len(graph.input_tiles)
    for step_index in reversed(range(len(graph.steps))):
        step = graph.steps[step_index]
        output_index = input_count + step_index
        if step.statistics:
            boxes[output_index] = hull(boxes[output_index], step.output_tiles.tile(rank))
        if boxes[output_index].empty:
            continue
        for index in step.input_indices:
            input_box = boxes[output_index]
            if step.window is not None:
                input_box = cut_input(step.window, tiles_by_value[index], input_box).box
            boxes[index] = hull(boxes[index], input_box)
    return tuple(EMPTY_BOX if box.empty else box for box in boxes)


def compute_input_transfers(graph: OperatorGraph) -> tuple[Transfers, ...]:
    """Return, per input, the transfers of all pixels that the ranks need."""
    boxes_by_rank = [compute_value_boxes(graph, rank) for rank in range(graph.input_tiles[0].size)]
    return tuple(
        Transfers(tiles, tuple(boxes[input_index] for boxes in boxes_by_rank))
        for input_index, tiles in enumerate(graph.input_tiles)
    )


def find_freeable_values(graph: OperatorGraph) -> tuple[tuple[int, ...], ...]:
    """Return, per step, the values that can be freed after it.

    No later step reads them, and they are not results.
    """
    last_step_by_value: dict[int, int] = {}
    for step_index, step in enumerate(graph.steps):
        last_step_by_value |= dict.fromkeys(step.input_indices, step_index)
    return tuple(
        tuple(
            value
            for value, last_step in last_step_by_value.items()
            if last_step == step_index and value not in graph.output_indices
        )
        for step_index in range(len(graph.steps))
    )


@dataclass(frozen=True, slots=True)
class _AxisCut:
    inside: Interval
    padding: int
    uneven_padding: tuple[int, int]


def _cut_axis(window: Window, divided: bool, outputs: Interval, image_length: int) -> _AxisCut:
    if not divided:
        return _AxisCut((0, image_length), window.padding, (0, 0))
    first_read, end_read = window.find_inputs(outputs)
    inside = max(first_read, 0), min(end_read, image_length)
    before = inside[0] - first_read
    after = end_read - inside[1]
    if before == after:
        return _AxisCut(inside, before, (0, 0))
    return _AxisCut(inside, 0, (before, after))
