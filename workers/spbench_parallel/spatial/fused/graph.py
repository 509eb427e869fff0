"""Boxes in a graph of operators that exchanges once: the pixels of each value on a rank.

Going back from the pixels that a rank owns of the results, every operator needs a box of its
inputs; of a value that several operators read, a rank needs the smallest box that holds the needs
of all. Boxes end at the image's border: an operator pads there as it would alone, and no value ever
reaches beyond. Along an axis that is not divided every box is whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from spbench_core.layout.partition import EMPTY_BOX, Partition, Transfers
from spbench_core.layout.tiles import Box, Interval
from spbench_core.layout.window import Window, Window2d
from spbench_parallel.spatial.fused.chain import hull


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """One operator of a graph, which makes one value.

    Attributes:
        reads: The values that it works on, by number.
        made: The tiles of its output.
        window: None for an operator that works pixel by pixel.
        statistics: Whether it takes statistics, and so reads all pixels that the rank owns.
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
        steps: The operators; each reads values of lower numbers.
        results: The values that are outputs, by number.
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
    """The cut of its input that an operator with a window computes its outputs from.

    Attributes:
        box: Pixels of its input; all of them are in the image.
        padding: Rows and columns that the operator itself adds, as many before as after.
        beyond: Padding added before, where it differs on two sides: columns before and after, then
            rows before and after.
    """

    box: Box
    padding: tuple[int, int]
    uneven_padding: tuple[int, int, int, int]


def cut_input(window: Window2d, owned: Partition, outputs: Box) -> InputCut:
    """Return the cut of the input that these outputs, not none, are computed from.

    Args:
        window: The operator's window.
        owned: The tiles of its input.
        outputs: Pixels of its output.
    """
    rows = _axis(window.rows, owned.grid.rows > 1, outputs.rows, owned.height)
    cols = _axis(window.cols, owned.grid.cols > 1, outputs.cols, owned.width)
    return InputCut(
        Box(rows.inside, cols.inside), (rows.padding, cols.padding), (*cols.beyond, *rows.beyond)
    )


def graph_boxes(graph: OperatorGraph, rank: int) -> tuple[Box, ...]:
    """Return the box of each value that a rank works on."""
    values = graph.values
    boxes = [EMPTY_BOX] * len(values)
    for value in graph.results:
        boxes[value] = hull(boxes[value], values[value].tile(rank))
    first = len(graph.inputs)
    for index in reversed(range(len(graph.steps))):
        step = graph.steps[index]
        made = first + index
        if step.statistics:
            boxes[made] = hull(boxes[made], step.output.tile(rank))
        if boxes[made].empty:
            continue
        for value in step.reads:
            box = boxes[made]
            if step.window is not None:
                box = cut_input(step.window, values[value], box).box
            boxes[value] = hull(boxes[value], box)
    return tuple(EMPTY_BOX if box.empty else box for box in boxes)


def graph_transfers(graph: OperatorGraph) -> tuple[Transfers, ...]:
    """Return, for each input, the transfers that give every rank all pixels that it needs."""
    ranks = [graph_boxes(graph, rank) for rank in range(graph.inputs[0].size)]
    return tuple(
        Transfers(owned, tuple(boxes[value] for boxes in ranks))
        for value, owned in enumerate(graph.inputs)
    )


def last_uses(graph: OperatorGraph) -> tuple[tuple[int, ...], ...]:
    """Return, for each step, the values that no later step reads and that are no results."""
    last: dict[int, int] = {}
    for index, step in enumerate(graph.steps):
        last |= dict.fromkeys(step.reads, index)
    return tuple(
        tuple(value for value, use in last.items() if use == index and value not in graph.results)
        for index in range(len(graph.steps))
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    inside: Interval
    padding: int
    beyond: tuple[int, int]


def _axis(window: Window, divided: bool, outputs: Interval, length: int) -> _Axis:
    if not divided:
        return _Axis((0, length), window.padding, (0, 0))
    first, last = window.find_inputs(outputs)
    inside = max(first, 0), min(last, length)
    before = inside[0] - first
    after = last - inside[1]
    if before == after:
        return _Axis(inside, before, (0, 0))
    return _Axis(inside, 0, (before, after))
