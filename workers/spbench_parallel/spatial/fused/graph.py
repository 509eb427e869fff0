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
        reads: The indices of the values that it reads.
        output: The tiles of its output.
        window: None for a pixelwise operator.
        statistics: Whether it computes statistics, and therefore reads all pixels that the rank
            owns.
    """

    reads: tuple[int, ...]
    output: Partition
    window: Window2d | None = None
    statistics: bool = False


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """Operators in the order in which all ranks run them.

    Values are numbered: first the inputs, then the outputs of the steps.

    Attributes:
        inputs: The tiles of each input.
        steps: The operators; each reads values with lower indices.
        results: The indices of the values that are outputs.
    """

    inputs: tuple[Partition, ...]
    steps: tuple[OperatorStep, ...]
    results: tuple[int, ...]

    @property
    def values(self) -> tuple[Partition, ...]:
        """The tiles of each value."""
        return *self.inputs, *(step.output for step in self.steps)


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


def cut_input(window: Window2d, owned: Partition, outputs: Box) -> InputCut:
    """Return the part of the input from which outputs are computed.

    Args:
        window: The operator's window.
        owned: The tiles of its input.
        outputs: Pixels of its output; not empty.
    """
    rows = _cut_axis(window.rows, owned.grid.rows > 1, outputs.rows, owned.height)
    cols = _cut_axis(window.cols, owned.grid.cols > 1, outputs.cols, owned.width)
    return InputCut(
        Box(rows.inside, cols.inside),
        (rows.padding, cols.padding),
        (*cols.uneven_padding, *rows.uneven_padding),
    )


def graph_boxes(graph: OperatorGraph, rank: int) -> tuple[Box, ...]:
    """Return the box of each value on a rank."""
    values = graph.values
    boxes = [EMPTY_BOX] * len(values)
    for value in graph.results:
        boxes[value] = hull(boxes[value], values[value].tile(rank))
    first = len(graph.inputs)
    for index in reversed(range(len(graph.steps))):
        step = graph.steps[index]
        output = first + index
        if step.statistics:
            boxes[output] = hull(boxes[output], step.output.tile(rank))
        if boxes[output].empty:
            continue
        for value in step.reads:
            box = boxes[output]
            if step.window is not None:
                box = cut_input(step.window, values[value], box).box
            boxes[value] = hull(boxes[value], box)
    return tuple(EMPTY_BOX if box.empty else box for box in boxes)


def graph_transfers(graph: OperatorGraph) -> tuple[Transfers, ...]:
    """Return, per input, the transfers of all pixels that the ranks need."""
    ranks = [graph_boxes(graph, rank) for rank in range(graph.inputs[0].size)]
    return tuple(
        Transfers(owned, tuple(boxes[value] for boxes in ranks))
        for value, owned in enumerate(graph.inputs)
    )


def last_uses(graph: OperatorGraph) -> tuple[tuple[int, ...], ...]:
    """Return, per step, the values that can be freed after it.

    No later step reads them, and they are not results.
    """
    last: dict[int, int] = {}
    for index, step in enumerate(graph.steps):
        last |= dict.fromkeys(step.reads, index)
    return tuple(
        tuple(value for value, use in last.items() if use == index and value not in graph.results)
        for index in range(len(graph.steps))
    )


@dataclass(frozen=True, slots=True)
class _AxisCut:
    inside: Interval
    padding: int
    uneven_padding: tuple[int, int]


def _cut_axis(window: Window, divided: bool, outputs: Interval, length: int) -> _AxisCut:
    if not divided:
        return _AxisCut((0, length), window.padding, (0, 0))
    first, last = window.find_inputs(outputs)
    inside = max(first, 0), min(last, length)
    before = inside[0] - first
    after = last - inside[1]
    if before == after:
        return _AxisCut(inside, before, (0, 0))
    return _AxisCut(inside, 0, (before, after))
