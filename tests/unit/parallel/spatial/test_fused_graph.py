"""Graphs of layers that exchange once, compared with a brute-force computation."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spbench_core.layout.partition import EMPTY_BOX, Partition
from spbench_core.layout.tiles import Box, Grid
from spbench_core.layout.window import Window, Window2d
from spbench_parallel.spatial.fused.graph import (
    OperatorGraph,
    OperatorStep,
    compute_input_transfers,
    compute_value_boxes,
    cut_input,
    find_freeable_values,
)

brute_force = settings(max_examples=40)
NAMES = ("rows", "cols")


@st.composite
def draw_windows(draw):
    """Draw a window that keeps its centre in the image, like windows of networks."""
    axes = []
    for _ in NAMES:
        padding = draw(st.integers(0, 3))
        dilation = draw(st.integers(1, 2))
        kernel = draw(st.integers(padding + 1, 2 * padding + 2))
        axes.append(Window(kernel, draw(st.integers(1, 3)), padding * dilation, dilation))
    return Window2d(*axes)


@st.composite
def draw_graphs(draw):
    """Draw operators with and without windows, sums of equal sizes, and statistics."""
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
        window = draw(st.none() | draw_windows())
        equal_values = [number for number, partition in enumerate(values) if partition == read]
        if window is None:
            operands = tuple(draw(st.lists(st.sampled_from(equal_values), min_size=1, max_size=3)))
            steps.append(
                OperatorStep(operands, read, statistics=len(operands) == 1 and draw(st.booleans()))
            )
        else:
            try:
                output = read.resize(*window.output_size(read.height, read.width))
            except ValueError:
                # The window is larger than the remaining image.
                continue
            steps.append(OperatorStep((reads,), output, window))
        values.append(steps[-1].output_tiles)
    more_results = draw(st.lists(st.integers(0, len(values) - 1), max_size=1))
    return OperatorGraph(
        inputs, tuple(steps), tuple(dict.fromkeys([len(values) - 1, *more_results]))
    )


def list_pixels(box):
    return {(row, col) for row in range(*box.rows) for col in range(*box.cols)}


def list_window_positions(axis, output):
    """Return the positions from the first that a window reads to the last."""
    first = output * axis.stride - axis.padding
    return range(first, first + axis.span)


def find_needed_pixels(graph, rank):
    """Return the pixels of each value that a rank needs, followed one by one."""
    values = graph.value_tiles
    needed = [set() for _ in values]
    for value in graph.output_indices:
        needed[value] |= list_pixels(values[value].tile(rank))
    for index, step in reversed(list(enumerate(graph.steps))):
        pixels = needed[len(graph.input_tiles) + index]
        if step.statistics:
            pixels |= list_pixels(step.output_tiles.tile(rank))
        for value in step.input_indices:
            needed[value] |= (
                pixels if step.window is None else find_read_pixels(step, pixels, values[value])
            )
    return needed


def find_read_pixels(step, pixels, owned):
    return {
        (row, col)
        for output_row, output_col in pixels
        for row in list_window_positions(step.window.rows, output_row)
        for col in list_window_positions(step.window.cols, output_col)
    } & list_pixels(owned.image)


@brute_force
@given(draw_graphs())
def test_boxes_are_the_smallest_with_all_needed_pixels(graph):
    for rank in range(graph.input_tiles[0].size):
        boxes = compute_value_boxes(graph, rank)
        for pixels, box, owned in zip(
            find_needed_pixels(graph, rank), boxes, graph.value_tiles, strict=True
        ):
            assert pixels <= list_pixels(box)
            assert box.intersect(owned.image) == box
            if not pixels:
                assert box == EMPTY_BOX
                continue
            for axis, name in enumerate(NAMES):
                positions = [pixel[axis] for pixel in pixels]
                smallest = min(positions), max(positions) + 1
                full_range = getattr(owned.image, name)
                undivided = getattr(owned.grid, name) == 1
                assert getattr(box, name) in ((full_range,) if undivided else (smallest,))


def convolve(pixels, window, weights):
    """Return the sum of the inputs of each window, with a weight for each tap."""
    rows, cols = window.output_size(*pixels.shape)
    padded = np.pad(pixels, [(axis.padding, axis.padding) for axis in (window.rows, window.cols)])
    sums = np.zeros((rows, cols))
    for row, col in np.ndindex(window.rows.kernel, window.cols.kernel):
        top = row * window.rows.dilation
        left = col * window.cols.dilation
        part = padded[top :: window.rows.stride, left :: window.cols.stride]
        sums += weights[row, col] * part[:rows, :cols]
    return sums


def replace_padding(window, padding):
    return Window2d(
        *(
            Window(axis.kernel, axis.stride, length, axis.dilation)
            for axis, length in zip((window.rows, window.cols), padding, strict=True)
        )
    )


def cut_box(pixels, origin_box, box):
    rows, cols = (
        slice(*(position - origin[0] for position in interval))
        for interval, origin in ((box.rows, origin_box.rows), (box.cols, origin_box.cols))
    )
    return pixels[rows, cols]


def apply_step(step, reads, weights):
    return sum(reads) + 1.0 if step.window is None else convolve(reads[0], step.window, weights)


@brute_force
@given(draw_graphs(), st.integers(0, 2**32 - 1))
def test_ranks_on_boxes_equal_one_rank_on_the_image(graph, seed):
    generator = np.random.default_rng(seed)
    complete = [generator.normal(size=(value.height, value.width)) for value in graph.input_tiles]
    weights = [
        None
        if step.window is None
        else generator.normal(size=(step.window.rows.kernel, step.window.cols.kernel))
        for step in graph.steps
    ]
    for step, taps_ in zip(graph.steps, weights, strict=True):
        complete.append(apply_step(step, [complete[index] for index in step.input_indices], taps_))
    for rank in range(graph.input_tiles[0].size):
        boxes = compute_value_boxes(graph, rank)
        values = [
            cut_box(value, Box((0, value.shape[0]), (0, value.shape[1])), box)
            for value, box in zip(complete[: len(graph.input_tiles)], boxes, strict=False)
        ]
        for step, taps_, box in zip(
            graph.steps, weights, boxes[len(graph.input_tiles) :], strict=True
        ):
            values.append(compute_step(graph, step, taps_, values, boxes, box))
        for index in graph.output_indices:
            tile = graph.value_tiles[index].tile(rank)
            if not tile.empty:
                expected = cut_box(complete[index], graph.value_tiles[index].image, tile)
                assert np.allclose(cut_box(values[index], boxes[index], tile), expected)


def compute_step(graph, step, weights, values, boxes, box):
    if box.empty:
        return np.zeros((0, 0))
    if step.window is None:
        return apply_step(
            step, [cut_box(values[value], boxes[value], box) for value in step.input_indices], None
        )
    (value,) = step.input_indices
    part = cut_input(step.window, graph.value_tiles[value], box)
    left, right, top, bottom = part.uneven_padding
    pixels = np.pad(cut_box(values[value], boxes[value], part.box), [(top, bottom), (left, right)])
    output = convolve(pixels, replace_padding(step.window, part.padding), weights)
    assert output.shape == box.shape
    return output


@brute_force
@given(draw_graphs())
def test_one_exchange_delivers_all_missing_pixels(graph):
    for number, table in enumerate(compute_input_transfers(graph)):
        for rank in range(table.owned.size):
            expected = list_pixels(compute_value_boxes(graph, rank)[number])
            retained = table.needed[rank].intersect(table.owned.tile(rank))
            parts = [retained, *(piece.box for piece in table.list_received(rank))]
            assert expected == set().union(*map(list_pixels, parts))
            assert len(expected) == sum(len(list_pixels(part)) for part in parts)


@brute_force
@given(draw_graphs())
def test_keeps_a_value_until_its_last_use(graph):
    freed = set()
    for step, freed_by_step in zip(graph.steps, find_freeable_values(graph), strict=True):
        assert not freed & set(step.input_indices)
        assert not set(freed_by_step) & set(graph.output_indices)
        freed |= set(freed_by_step)
    read = {value for step in graph.steps for value in step.input_indices}
    assert freed == read - set(graph.output_indices)


def test_halos_of_residual_blocks_follow_the_formula():
    """The halo is 2w + 4 (f - w) - 1 for f blocks of two 3x3 convolutions.

    The block after w halves the image.
    """
    three = Window(3, 1, 1)
    halving = Window(3, 2, 1)
    grid = Grid(2, 2)
    for blocks in range(1, 5):
        for before in range(blocks):
            image = Partition.from_grid(grid, 128, 128)
            values = [image]
            steps = []
            for block in range(blocks):
                first = halving if block == before else three
                for window in (first, three):
                    window2d = Window2d(window, window)
                    output = values[-1].resize(
                        *window2d.output_size(values[-1].height, values[-1].width)
                    )
                    steps.append(OperatorStep((len(values) - 1,), output, window2d))
                    values.append(output)
            graph = OperatorGraph((image,), tuple(steps), (len(steps),))
            lower_right = compute_value_boxes(graph, 3)[0]
            halo = 64 - lower_right.rows[0]
            assert halo == 2 * before + 4 * (blocks - before) - 1
