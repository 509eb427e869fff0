"""Graphs of layers that exchange once, against pixel-by-pixel brute force."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_core.layout.partition import EMPTY_BOX, Partition
from spbench_core.layout.tiles import Box, Grid
from spbench_core.layout.window import Window, Window2d
from spbench_parallel.spatial.fused.graph import (
    OperatorGraph,
    OperatorStep,
    cut_input,
    graph_boxes,
    graph_transfers,
    last_uses,
)

brute_force = settings(max_examples=40)
NAMES = ("rows", "cols")


@st.composite
def windows(draw):
    """A window that keeps its centre in the image, as those of networks do."""
    axes = []
    for _ in NAMES:
        padding = draw(st.integers(0, 3))
        dilation = draw(st.integers(1, 2))
        kernel = draw(st.integers(padding + 1, 2 * padding + 2))
        axes.append(Window(kernel, draw(st.integers(1, 3)), padding * dilation, dilation))
    return Window2d(*axes)


@st.composite
def graphs(draw):
    """Operators with and without windows, sums of values of one size, and statistics."""
    grid = Grid(draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    size = grid.size + draw(st.integers(0, 1))
    ranks = draw(st.permutations(range(size)))[: grid.size]
    image = Partition.from_grid(
        grid, draw(st.integers(3, 12)), draw(st.integers(3, 12)), ranks=ranks, size=size
    )
    inputs = (image,) * draw(st.integers(1, 2))
    values = list(inputs)
    steps = []
    for _ in range(draw(st.integers(1, 6))):
        reads = draw(st.integers(0, len(values) - 1))
        read = values[reads]
        window = draw(st.none() | windows())
        alike = [number for number, one in enumerate(values) if one == read]
        if window is None:
            several = tuple(draw(st.lists(st.sampled_from(alike), min_size=1, max_size=3)))
            steps.append(
                OperatorStep(several, read, statistics=len(several) == 1 and draw(st.booleans()))
            )
        else:
            try:
                made = read.resize(*window.output_size(read.height, read.width))
            except ValueError:
                # The window is larger than what is left of the image.
                continue
            steps.append(OperatorStep((reads,), made, window))
        values.append(steps[-1].output)
    others = draw(st.lists(st.integers(0, len(values) - 1), max_size=1))
    return OperatorGraph(inputs, tuple(steps), tuple(dict.fromkeys([len(values) - 1, *others])))


def coordinates(box):
    return {(row, col) for row in range(*box.rows) for col in range(*box.cols)}


def span(axis, output):
    """The places from the first that a window reads to the last."""
    first = output * axis.stride - axis.padding
    return range(first, first + axis.span)


def needed(graph, rank):
    """The pixels of each value that a rank must know, followed one by one."""
    values = graph.values
    found = [set() for _ in values]
    for value in graph.results:
        found[value] |= coordinates(values[value].tile(rank))
    for index, step in reversed(list(enumerate(graph.steps))):
        pixels = found[len(graph.inputs) + index]
        if step.statistics:
            pixels |= coordinates(step.output.tile(rank))
        for value in step.reads:
            found[value] |= pixels if step.window is None else read_by(step, pixels, values[value])
    return found


def read_by(step, pixels, owned):
    return {
        (row, col)
        for output_row, output_col in pixels
        for row in span(step.window.rows, output_row)
        for col in span(step.window.cols, output_col)
    } & coordinates(owned.image)


@brute_force
@given(graphs())
def test_a_rank_works_on_the_smallest_boxes_that_hold_all_that_it_needs(graph):
    for rank in range(graph.inputs[0].size):
        boxes = graph_boxes(graph, rank)
        for pixels, box, owned in zip(needed(graph, rank), boxes, graph.values, strict=True):
            assert pixels <= coordinates(box)
            assert box.intersect(owned.image) == box
            if not pixels:
                assert box == EMPTY_BOX
                continue
            for axis, name in enumerate(NAMES):
                places = [pixel[axis] for pixel in pixels]
                smallest = min(places), max(places) + 1
                whole = getattr(owned.image, name)
                undivided = getattr(owned.grid, name) == 1
                assert getattr(box, name) in ((whole,) if undivided else (smallest,))


def convolved(pixels, window, weights):
    """The sum of what each window reads, each tap by a weight of its own."""
    rows, cols = window.output_size(*pixels.shape)
    padded = np.pad(pixels, [(axis.padding, axis.padding) for axis in (window.rows, window.cols)])
    made = np.zeros((rows, cols))
    for row, col in np.ndindex(window.rows.kernel, window.cols.kernel):
        top = row * window.rows.dilation
        left = col * window.cols.dilation
        part = padded[top :: window.rows.stride, left :: window.cols.stride]
        made += weights[row, col] * part[:rows, :cols]
    return made


def without_padding(window, padding):
    return Window2d(
        *(
            Window(axis.kernel, axis.stride, by, axis.dilation)
            for axis, by in zip((window.rows, window.cols), padding, strict=True)
        )
    )


def cut(pixels, held, box):
    rows, cols = (
        slice(*(place - origin[0] for place in interval))
        for interval, origin in ((box.rows, held.rows), (box.cols, held.cols))
    )
    return pixels[rows, cols]


def made_by(step, reads, weights):
    return sum(reads) + 1.0 if step.window is None else convolved(reads[0], step.window, weights)


@brute_force
@given(graphs(), st.integers(0, 2**32 - 1))
def test_what_ranks_compute_on_their_boxes_is_what_one_computes_on_the_image(graph, seed):
    generator = np.random.default_rng(seed)
    whole = [generator.normal(size=(one.height, one.width)) for one in graph.inputs]
    weights = [
        None
        if step.window is None
        else generator.normal(size=(step.window.rows.kernel, step.window.cols.kernel))
        for step in graph.steps
    ]
    for step, taps_ in zip(graph.steps, weights, strict=True):
        whole.append(made_by(step, [whole[value] for value in step.reads], taps_))
    for rank in range(graph.inputs[0].size):
        boxes = graph_boxes(graph, rank)
        held = [
            cut(one, Box((0, one.shape[0]), (0, one.shape[1])), box)
            for one, box in zip(whole[: len(graph.inputs)], boxes, strict=False)
        ]
        for step, taps_, box in zip(graph.steps, weights, boxes[len(graph.inputs) :], strict=True):
            held.append(computed(graph, step, taps_, held, boxes, box))
        for value in graph.results:
            tile = graph.values[value].tile(rank)
            if not tile.empty:
                expected = cut(whole[value], graph.values[value].image, tile)
                assert np.allclose(cut(held[value], boxes[value], tile), expected)


def computed(graph, step, weights, held, boxes, box):
    if box.empty:
        return np.zeros((0, 0))
    if step.window is None:
        return made_by(step, [cut(held[value], boxes[value], box) for value in step.reads], None)
    (value,) = step.reads
    part = cut_input(step.window, graph.values[value], box)
    left, right, top, bottom = part.uneven_padding
    pixels = np.pad(cut(held[value], boxes[value], part.box), [(top, bottom), (left, right)])
    made = convolved(pixels, without_padding(step.window, part.padding), weights)
    assert made.shape == box.shape
    return made


@brute_force
@given(graphs())
def test_one_exchange_gives_a_rank_all_that_it_does_not_own(graph):
    for number, table in enumerate(graph_transfers(graph)):
        for rank in range(table.owned.size):
            wanted = coordinates(graph_boxes(graph, rank)[number])
            kept = table.needed[rank].intersect(table.owned.tile(rank))
            parts = [kept, *(piece.box for piece in table.list_received(rank))]
            assert wanted == set().union(*map(coordinates, parts))
            assert len(wanted) == sum(len(coordinates(part)) for part in parts)


@brute_force
@given(graphs())
def test_a_value_is_kept_until_its_last_use(graph):
    gone = set()
    for step, done in zip(graph.steps, last_uses(graph), strict=True):
        assert not gone & set(step.reads)
        assert not set(done) & set(graph.results)
        gone |= set(done)
    read = {value for step in graph.steps for value in step.reads}
    assert gone == read - set(graph.results)


def test_halos_of_residual_blocks_are_those_of_the_formula():
    """2w + 4 (f - w) - 1 for f blocks of two 3x3 convolutions, the block after w halving."""
    three = Window(3, 1, 1)
    halving = Window(3, 2, 1)
    both = Grid(2, 2)
    for blocks in range(1, 5):
        for before in range(blocks):
            image = Partition.from_grid(both, 128, 128)
            values = [image]
            steps = []
            for block in range(blocks):
                first = halving if block == before else three
                for window in (first, three):
                    wide = Window2d(window, window)
                    made = values[-1].resize(*wide.output_size(values[-1].height, values[-1].width))
                    steps.append(OperatorStep((len(values) - 1,), made, wide))
                    values.append(made)
            graph = OperatorGraph((image,), tuple(steps), (len(steps),))
            lower_right = graph_boxes(graph, 3)[0]
            halo = 64 - lower_right.rows[0]
            assert halo == 2 * before + 4 * (blocks - before) - 1
