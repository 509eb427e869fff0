"""Large tiles: the compared part of them, and detection of errors elsewhere."""

from dataclasses import replace
from functools import partial
from itertools import combinations

import pytest
import torch
from torch import nn

from spbench_core.layout.partition import Partition
from spbench_core.layout.tiles import Box, Grid
from spbench_core.layout.window import Window, Window2d
from spbench_parallel.spatial.exchange import view_box
from spbench_parallel.spatial.pixels import IntegerImage
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.halo import compare, compute, fused
from spbench_workers.benchmarks.halo.operator_checks import OperatorCase
from spbench_workers.benchmarks.halo.reference import Reference, compute_reach
from spbench_workers.benchmarks.halo.sampling import (
    Sampling,
    SamplingLimits,
    choose_sampling,
    count_flop,
)
from standins.late_device import install
from support.recording_context import find_events, get_choice, make_context

install()
SMALL_BOXES = SamplingLimits(min_border_pixels=3, box_side_pixels=5, boxes_per_tile=4)
SAMPLED = replace(SMALL_BOXES, max_compared_flop=0.0)
BORDERS = replace(SAMPLED, boxes_per_tile=0)


def make_window(conv):
    axes = zip(conv.kernel_size, conv.stride, conv.padding, conv.dilation, strict=True)
    return Window2d(*(Window(*axis) for axis in axes))


LAYERS = {
    "3x3": [nn.Conv2d(2, 3, 3, padding=1)],
    "strided": [nn.Conv2d(2, 3, 4, stride=2, padding=1)],
    "dilated": [nn.Conv2d(2, 3, (1, 3), dilation=2, padding=(0, 1))],
    "three": [nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2), nn.Conv2d(4, 3, 3)],
}


def make_sampling(name, grid="2x2", size=(90, 101)):
    layers = nn.Sequential(*LAYERS[name]).double()
    windows = [make_window(conv) for conv in layers]
    owned = produced = Partition.from_grid(Grid(*map(int, grid.split("x"))), *size)
    for window in windows:
        produced = produced.resize(*window.output_size(produced.height, produced.width))
    sampler = Sampling(
        owned, produced, windows, lambda round_, rank: 97 * round_ + rank, 1.0, SMALL_BOXES
    )
    return layers, windows, sampler


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("round_", range(3))
def test_boxes_are_disjoint_and_cover_all_halo_outputs(name, round_):
    _, windows, sampler = make_sampling(name)
    for rank in range(4):
        tile = sampler.produced.tile(rank)
        boxes = sampler.select_outputs(round_, rank)
        assert len(boxes) >= 4 + 1
        assert all(box.intersect(tile) == box and not box.empty for box in boxes)
        assert all(first.intersect(second).empty for first, second in combinations(boxes, 2))
        coverage = torch.zeros((tile.height, tile.width))
        for box in boxes:
            rows, cols = (
                slice(a - b[0], c - b[0])
                for (a, c), b in ((box.rows, tile.rows), (box.cols, tile.cols))
            )
            coverage[rows, cols] += 1
        edge = [
            max(3, -(-reach // stride))
            for stride, reach in (
                compute_reach([w.rows for w in windows]),
                compute_reach([w.cols for w in windows]),
            )
        ]
        inner = coverage[edge[0] : -edge[0], edge[1] : -edge[1]]
        assert float(coverage.sum() - inner.sum()) == coverage.numel() - inner.numel()
        # A wrong row or a wrong column intersects a compared box.
        assert bool((coverage.sum(0) > 0).all())
        assert bool((coverage.sum(1) > 0).all())
        assert 0 < sampler.compared_share(round_, rank) < 1


def test_each_round_and_rank_has_different_boxes():
    _, _, sampler = make_sampling("3x3")
    boxes = [str(sampler.select_outputs(round_, rank)) for round_ in range(4) for rank in range(4)]
    assert len(set(boxes)) == 16
    assert str(sampler.select_outputs(2, 3)) == boxes[2 * 4 + 3]


@pytest.mark.parametrize("size", [(8, 14), (5, 200), (1, 1)])
def test_compares_all_of_a_tile_that_is_mostly_border(size):
    _, _, sampler = make_sampling("3x3", "1x1", size)
    assert sampler.select_outputs(0, 0) == [sampler.produced.tile(0)]
    assert sampler.compared_share(0, 0) == 1.0


def test_a_rank_without_a_tile_compares_nothing():
    _, _, sampler = make_sampling("3x3", "4x1", (3, 60))
    empty = [rank for rank in range(4) if sampler.produced.tile(rank).empty]
    assert empty
    assert [sampler.select_outputs(0, rank) + sampler.select_inputs(0, rank) for rank in empty] == [
        []
    ] * len(empty)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_boxes_of_the_reference_equal_the_complete_one(name):
    layers, windows, sampler = make_sampling(name)
    owned = sampler.owned
    produced = sampler.produced
    image = IntegerImage(2, 2, owned.height, owned.width, 5, 3)
    gradient = IntegerImage(2, 3, produced.height, produced.width, 6, 2)
    for rank in range(4):
        reference = Reference(
            layers,
            windows,
            lambda box: image.make_box(box, 1, torch.float64),
            lambda box: sampler.make_gradient(gradient, box, 1, torch.float64),
            owned,
        )
        tile = owned.tile(rank)
        outputs = produced.tile(rank)
        ((_, output),) = (complete := reference.compute_tile(tile, outputs)).output
        ((_, input_gradient),) = complete.input_gradient
        partial = reference.compute_boxes(
            sampler.select_inputs(1, rank), sampler.select_outputs(1, rank)
        )
        for box_values, complete_values, origin in (
            (partial.output, output, outputs),
            (partial.input_gradient, input_gradient, tile),
        ):
            assert box_values
            for box, values in box_values:
                torch.testing.assert_close(values, view_box(complete_values, origin, box))
        torch.testing.assert_close(partial.parameter_gradients, complete.parameter_gradients)
        assert all(parameter.abs().max() > 0 for parameter in partial.parameter_gradients)
        assert input_gradient.abs().max() > 0


def test_gradients_are_zero_outside_of_compared_boxes():
    _, _, sampler = make_sampling("3x3")
    gradient = IntegerImage(1, 1, 90, 101, 6, 2)
    all_pixels = Box((0, 90), (0, 101))
    dtype = torch.float32
    values = sampler.make_gradient(gradient, all_pixels, 1, dtype)
    expected = gradient.make_box(all_pixels, 1, dtype)
    for rank in range(4):
        for box in sampler.select_outputs(1, rank):
            box_gradient = view_box(expected, all_pixels, box)
            assert torch.equal(view_box(values, all_pixels, box), box_gradient)
            box_gradient.zero_()
    compared_share = sum(sampler.compared_share(1, rank) for rank in range(4)) / 4
    assert float((values != 0).float().mean()) == pytest.approx(0.8 * compared_share, rel=0.1)
    assert torch.equal(
        sampler.make_gradient(gradient, Box((30, 60), (40, 70)), 1, dtype),
        values[:, :, 30:60, 40:70],
    )


def test_counts_three_convolutions_per_layer():
    layers, windows, sampler = make_sampling("3x3", "1x2", (10, 20))
    assert count_flop(layers, 4, windows, sampler.owned) == 3 * 2 * 4 * 10 * 20 * 2 * 3 * 9 / 2
    arguments = (windows, sampler.owned, sampler.produced, sampler.seed)
    assert choose_sampling(layers, 4, *arguments) is None
    assert choose_sampling(layers, 10**7, *arguments) is not None


SMALL = {"image_size": "40x53", "grid": "1x1", "in_channels": 2, "out_channels": 2}
RUNS = {"halo.compute": compute.run, "halo.fused": fused.run}


def run_sampled(name, limits=SAMPLED, **params):
    settings = SMALL | {"iterations": 1, "warmup": 0, "device": "cpu"} | params
    context = make_context(name, **settings)
    RUNS[name](context, sampling_limits=limits)
    return context


def list_failed_checks(context):
    return {check["name"] for check in find_events(context, "check") if not check["passed"]}


@pytest.mark.parametrize("name", RUNS)
def test_a_large_tile_passes_and_reports_the_compared_part(name, messages):
    context = run_sampled(name)
    assert len(find_events(context, "check")) == 4
    assert not list_failed_checks(context)
    value, reason = get_choice(context, "checked")
    messages.check(value)
    assert value.endswith(" % of the values")
    messages.check(reason)


@pytest.mark.parametrize("name", RUNS)
def test_reports_nothing_for_a_small_tile(name):
    context = make_context(name, **SMALL, iterations=1, warmup=0, device="cpu")
    RUNS[name](context)
    assert not find_events(context, "choice", name="checked")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_detects_any_wrong_value_at_the_border(seed, monkeypatch):
    convolve = torch.conv2d

    def convolve_wrongly(images, *args):
        result = convolve(images, *args)
        if result.dtype == torch.float32:
            row, col = [(0, 0), (-1, -1), (0, seed), (seed, -1)][seed % 4]
            result[0, 0, row, col] += 1
        return result

    monkeypatch.setattr(torch, "conv2d", convolve_wrongly)
    assert list_failed_checks(run_sampled("halo.compute", seed=seed)) == {"conv"}


@pytest.mark.parametrize("axis", ["row", "col"])
def test_detects_a_wrong_row_or_column(axis, monkeypatch):
    convolve = torch.conv2d

    def convolve_wrongly(images, *args):
        result = convolve(images, *args)
        if result.dtype == torch.float32:
            (result[0, 0, 21] if axis == "row" else result[0, 0, :, 23]).add_(1)
        return result

    monkeypatch.setattr(torch, "conv2d", convolve_wrongly)
    assert "conv" in list_failed_checks(run_sampled("halo.compute"))


OUTSIDE = {"NaN": float("nan"), "infinity": float("inf"), "fraction": 0.4}
ANY_NUMBER = ("fraction", "halo.fused")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("wrong", "name"),
    [(wrong, name) for wrong in OUTSIDE for name in RUNS if (wrong, name) != ANY_NUMBER],
)
def test_detects_large_errors_outside_of_boxes(wrong, name, seed, monkeypatch):
    """The error is in the middle of a tile, in no compared box."""
    convolve = torch.conv2d

    def convolve_wrongly(images, *args):
        result = convolve(images, *args)
        if result.dtype == torch.float32:
            row = 35 + 3 * seed
            col = 50 - 5 * seed
            result.data[0, 1, row, col] += OUTSIDE[wrong]
        return result

    monkeypatch.setattr(fused, "_compare_outputs", lambda *_: WorstError())
    monkeypatch.setattr(torch, "conv2d", convolve_wrongly)
    context = run_sampled(name, BORDERS, seed=seed, image_size="80x90")
    assert "conv" in list_failed_checks(context)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("wrong", [1.0, float("nan")])
def test_detects_gradients_of_unreached_pixels(name, wrong, monkeypatch, messages):
    """An example is memory that the backward pass did not write."""
    backward = torch.Tensor.backward

    def backward_wrongly(self, gradient=None, **kwargs):
        backward(self, gradient, **kwargs)
        for tile in tiles:
            if tile.grad is not None:
                tile.grad[0, 1, 40, 45] += wrong

    tiles = []
    draw_tile = OperatorCase.draw_tile

    def draw_and_keep_tile(*args):
        tiles[:] = [draw_tile(*args)]
        return tiles[0]

    monkeypatch.setattr(OperatorCase, "draw_tile", draw_and_keep_tile)
    monkeypatch.setattr(torch.Tensor, "backward", backward_wrongly)
    context = run_sampled(name, BORDERS, image_size="80x90")
    assert list_failed_checks(context) == {"grad"}
    (check,) = find_events(context, "check", name="grad")
    messages.check(check["detail"])


@pytest.mark.parametrize("name", LAYERS)
def test_pixels_without_a_reader_have_no_gradient(name):
    layers, _, sampler = make_sampling(name, size=(90, 101))
    image = torch.ones((1, 2, 90, 101), dtype=torch.float64, requires_grad=True)
    result = layers(image)
    gradient = torch.zeros_like(result)
    complete_box = Box((0, result.shape[2]), (0, result.shape[3]))
    for rank in range(4):
        for box in sampler.select_outputs(1, rank):
            view_box(gradient, complete_box, box).fill_(1.0)
    result.backward(gradient)
    for rank in range(4):
        tile = sampler.owned.tile(rank)
        tile_gradient = view_box(image.grad, Box((0, 90), (0, 101)), tile).clone()
        read_boxes = sampler.select_read_boxes(1, tile)
        assert compare.check_unreached_pixels(
            tile_gradient, tile, 0.0, read_boxes
        ) == WorstError.single(0.0)
        assert compare.check_unreached_pixels(tile_gradient, tile, 0.0, []).exceeds


@pytest.mark.parametrize("device", ["cpu", "late"])
@pytest.mark.parametrize("position", [(0, 0, 0, 0), (1, 2, 3, 4), (0, 1, 6, 7)])
@pytest.mark.parametrize("values_at_once", [1, 60, 1 << 20])
def test_reports_the_position_of_a_stray_value(device, position, values_at_once):
    tile = Box((10, 17), (20, 28))
    values = torch.zeros((2, 3, 7, 8))
    values[position] = 2.5
    image, channel, row, col = position
    location = f"row {10 + row}, col {20 + col} (image {image}, channel {channel}) is 2.5, "
    late_values = values.to(torch.device(device))
    check_tile = partial(compare.check_whole_tile, late_values, tile, values_at_once=values_at_once)
    check_unreached = partial(
        compare.check_unreached_pixels, late_values, tile, 0.25, values_at_once=values_at_once
    )
    assert check_tile(0.25, whole_numbers=True) == WorstError.single(
        0.5, 0.25, location + "no whole number"
    )
    assert not check_tile(0.5, whole_numbers=True).exceeds
    assert not check_tile(0.0, whole_numbers=False).exceeds
    stray = check_unreached([])
    assert stray == WorstError.single(2.5, 0.25, location + "and nothing reaches it")
    own_box = Box((10 + row, 11 + row), (20 + col, 21 + col))
    assert not check_unreached([own_box]).exceeds


def test_detects_wrong_gradients_of_parameters(monkeypatch):
    backward = torch.Tensor.backward

    def backward_wrongly(self, gradient=None, **kwargs):
        backward(self, gradient, **kwargs)
        for parameter in parameters:
            parameter.grad.add_(1)

    parameters = []
    open_case = compute._open_case

    def open_and_keep(*args):
        convolution, case = open_case(*args)
        parameters.append(convolution.module.bias)
        return convolution, case

    monkeypatch.setattr(compute, "_open_case", open_and_keep)
    monkeypatch.setattr(torch.Tensor, "backward", backward_wrongly)
    assert list_failed_checks(run_sampled("halo.compute")) == {"grad"}
