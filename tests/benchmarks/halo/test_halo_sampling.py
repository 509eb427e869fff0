"""Large tiles: what of them is compared, and that what is wrong there is found."""

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
from spbench_workers.benchmarks.halo import compare, compute, fused, sampling
from spbench_workers.benchmarks.halo.operator_checks import OperatorCase
from spbench_workers.benchmarks.halo.reference import Reference, compute_reach
from spbench_workers.benchmarks.halo.sampling import Sampling, choose_sampling, count_flop
from standins.late_device import install
from unit.recorded import choice_of, context_of, said

install()


def window_of(conv):
    axes = zip(conv.kernel_size, conv.stride, conv.padding, conv.dilation, strict=True)
    return Window2d(*(Window(*axis) for axis in axes))


LAYERS = {
    "3x3": [nn.Conv2d(2, 3, 3, padding=1)],
    "strided": [nn.Conv2d(2, 3, 4, stride=2, padding=1)],
    "dilated": [nn.Conv2d(2, 3, (1, 3), dilation=2, padding=(0, 1))],
    "three": [nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2), nn.Conv2d(4, 3, 3)],
}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(sampling, "MIN_BORDER", 3)
    monkeypatch.setattr(sampling, "BOX_SIDE", 5)
    monkeypatch.setattr(sampling, "BOX_COUNT", 4)


def made(name, grid="2x2", size=(90, 101)):
    layers = nn.Sequential(*LAYERS[name]).double()
    windows = [window_of(conv) for conv in layers]
    owned = produced = Partition.from_grid(Grid(*map(int, grid.split("x"))), *size)
    for window in windows:
        produced = produced.resize(*window.output_size(produced.height, produced.width))
    chosen = Sampling(owned, produced, windows, lambda round_, rank: 97 * round_ + rank, 1.0)
    return layers, windows, chosen


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("round_", range(3))
def test_boxes_are_apart_within_the_tile_and_hold_all_that_needs_a_halo(name, round_):
    _, windows, chosen = made(name)
    for rank in range(4):
        tile = chosen.produced.tile(rank)
        boxes = chosen.select_outputs(round_, rank)
        assert len(boxes) >= 4 + 1
        assert all(box.intersect(tile) == box and not box.empty for box in boxes)
        assert all(one.intersect(other).empty for one, other in combinations(boxes, 2))
        whole = torch.zeros((tile.height, tile.width))
        for box in boxes:
            rows, cols = (
                slice(a - b[0], c - b[0])
                for (a, c), b in ((box.rows, tile.rows), (box.cols, tile.cols))
            )
            whole[rows, cols] += 1
        edge = [
            max(3, -(-reach // stride))
            for stride, reach in (
                compute_reach([w.rows for w in windows]),
                compute_reach([w.cols for w in windows]),
            )
        ]
        inner = whole[edge[0] : -edge[0], edge[1] : -edge[1]]
        assert float(whole.sum() - inner.sum()) == whole.numel() - inner.numel()
        # A whole row that is wrong, or a whole column, meets what is compared.
        assert bool((whole.sum(0) > 0).all())
        assert bool((whole.sum(1) > 0).all())
        assert 0 < chosen.compared_share(round_, rank) < 1


def test_each_round_and_rank_has_boxes_of_its_own():
    _, _, chosen = made("3x3")
    drawn = [str(chosen.select_outputs(round_, rank)) for round_ in range(4) for rank in range(4)]
    assert len(set(drawn)) == 16
    assert str(chosen.select_outputs(2, 3)) == drawn[2 * 4 + 3]


@pytest.mark.parametrize("size", [(8, 14), (5, 200), (1, 1)])
def test_a_tile_that_is_mostly_border_is_compared_whole(size):
    _, _, chosen = made("3x3", "1x1", size)
    assert chosen.select_outputs(0, 0) == [chosen.produced.tile(0)]
    assert chosen.compared_share(0, 0) == 1.0


def test_a_rank_without_a_tile_compares_nothing():
    _, _, chosen = made("3x3", "4x1", (3, 60))
    empty = [rank for rank in range(4) if chosen.produced.tile(rank).empty]
    assert empty
    assert [chosen.select_outputs(0, rank) + chosen.select_inputs(0, rank) for rank in empty] == [
        []
    ] * len(empty)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_boxes_of_the_reference_are_those_of_the_whole(name):
    layers, windows, chosen = made(name)
    owned = chosen.owned
    produced = chosen.produced
    image = IntegerImage(2, 2, owned.height, owned.width, 5, 3)
    gradient = IntegerImage(2, 3, produced.height, produced.width, 6, 2)
    for rank in range(4):
        reference = Reference(
            layers,
            windows,
            lambda box: image.make_box(box, 1, torch.float64),
            lambda box: chosen.make_gradient(gradient, box, 1, torch.float64),
            owned,
        )
        tile = owned.tile(rank)
        outputs = produced.tile(rank)
        ((_, output),) = (whole := reference.compute_tile(tile, outputs)).output
        ((_, of_input),) = whole.input_gradient
        some = reference.compute_boxes(
            chosen.select_inputs(1, rank), chosen.select_outputs(1, rank)
        )
        for found, all_, at in (
            (some.output, output, outputs),
            (some.input_gradient, of_input, tile),
        ):
            assert found
            for box, values in found:
                torch.testing.assert_close(values, view_box(all_, at, box))
        torch.testing.assert_close(some.parameter_gradients, whole.parameter_gradients)
        assert all(one.abs().max() > 0 for one in some.parameter_gradients)
        assert of_input.abs().max() > 0


def test_gradients_are_zero_where_nothing_is_compared():
    _, _, chosen = made("3x3")
    gradient = IntegerImage(1, 1, 90, 101, 6, 2)
    all_ = Box((0, 90), (0, 101))
    everywhere = torch.float32
    values = chosen.make_gradient(gradient, all_, 1, everywhere)
    wanted = gradient.make_box(all_, 1, everywhere)
    for rank in range(4):
        for box in chosen.select_outputs(1, rank):
            one = view_box(wanted, all_, box)
            assert torch.equal(view_box(values, all_, box), one)
            one.zero_()
    kept = sum(chosen.compared_share(1, rank) for rank in range(4)) / 4
    assert float((values != 0).float().mean()) == pytest.approx(0.8 * kept, rel=0.1)
    assert torch.equal(
        chosen.make_gradient(gradient, Box((30, 60), (40, 70)), 1, everywhere),
        values[:, :, 30:60, 40:70],
    )


def test_the_operations_are_those_of_three_convolutions_a_layer():
    layers, windows, chosen = made("3x3", "1x2", (10, 20))
    assert count_flop(layers, 4, windows, chosen.owned) == 3 * 2 * 4 * 10 * 20 * 2 * 3 * 9 / 2
    words = (windows, chosen.owned, chosen.produced, chosen.seed)
    assert choose_sampling(layers, 4, *words) is None
    assert choose_sampling(layers, 10**7, *words) is not None


SMALL = {"image_size": "40x53", "grid": "1x1", "in_channels": 2, "out_channels": 2}
RUNS = {"halo.compute": compute.run, "halo.fused": fused.run}


def ran(name, monkeypatch, **params):
    monkeypatch.setattr(sampling, "MAX_COMPARED_FLOP", 0.0)
    words = SMALL | {"iterations": 1, "warmup": 0, "device": "cpu"} | params
    context = context_of(name, **words)
    RUNS[name](context)
    return context


def failed(context):
    return {check["name"] for check in said(context, "check") if not check["passed"]}


@pytest.mark.parametrize("name", RUNS)
def test_a_large_tile_passes_and_says_what_was_compared(name, monkeypatch):
    context = ran(name, monkeypatch)
    assert len(said(context, "check")) == 4
    assert not failed(context)
    value, reason = choice_of(context, "checked")
    assert value.startswith("borders and boxes, ")
    assert value.endswith(" % of the values")
    assert "operations a round, more than" in reason


@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_said_of_a_small_tile_of_which_all_is_compared(name):
    context = context_of(name, **SMALL, iterations=1, warmup=0, device="cpu")
    RUNS[name](context)
    assert not said(context, "choice", name="checked")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_wrong_value_at_the_border_is_always_found(seed, monkeypatch):
    convolve = torch.conv2d

    def convolve_wrongly(images, *args):
        result = convolve(images, *args)
        if result.dtype == torch.float32:
            row, col = [(0, 0), (-1, -1), (0, seed), (seed, -1)][seed % 4]
            result[0, 0, row, col] += 1
        return result

    monkeypatch.setattr(torch, "conv2d", convolve_wrongly)
    assert failed(ran("halo.compute", monkeypatch, seed=seed)) == {"conv"}


@pytest.mark.parametrize("axis", ["row", "col"])
def test_a_wrong_row_or_column_anywhere_is_found(axis, monkeypatch):
    convolve = torch.conv2d

    def convolve_wrongly(images, *args):
        result = convolve(images, *args)
        if result.dtype == torch.float32:
            (result[0, 0, 21] if axis == "row" else result[0, 0, :, 23]).add_(1)
        return result

    monkeypatch.setattr(torch, "conv2d", convolve_wrongly)
    assert "conv" in failed(ran("halo.compute", monkeypatch))


OUTSIDE = {"NaN": float("nan"), "infinity": float("inf"), "fraction": 0.4}
ANY_NUMBER = ("fraction", "halo.fused")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("wrong", "name"),
    [(wrong, name) for wrong in OUTSIDE for name in RUNS if (wrong, name) != ANY_NUMBER],
)
def test_what_no_rounding_explains_is_found_anywhere_in_a_tile(wrong, name, seed, monkeypatch):
    """In the middle of a tile, in no box that is compared."""
    convolve = torch.conv2d

    def convolve_wrongly(images, *args):
        result = convolve(images, *args)
        if result.dtype == torch.float32:
            row = 35 + 3 * seed
            col = 50 - 5 * seed
            result.data[0, 1, row, col] += OUTSIDE[wrong]
        return result

    monkeypatch.setattr(sampling, "BOX_COUNT", 0)
    monkeypatch.setattr(fused, "_compare_outputs", lambda *_: WorstError())
    monkeypatch.setattr(torch, "conv2d", convolve_wrongly)
    assert "conv" in failed(ran(name, monkeypatch, seed=seed, image_size="80x90"))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("wrong", [1.0, float("nan")])
def test_gradients_where_nothing_comes_back_are_found(name, wrong, monkeypatch):
    """Memory that the backward pass did not write, say."""
    backward = torch.Tensor.backward

    def backward_wrongly(self, gradient=None, **kwargs):
        backward(self, gradient, **kwargs)
        for tile in tiles:
            if tile.grad is not None:
                tile.grad[0, 1, 40, 45] += wrong

    tiles = []
    tile_of = OperatorCase.draw_tile

    def tile_kept(*args):
        tiles[:] = [tile_of(*args)]
        return tiles[0]

    monkeypatch.setattr(sampling, "BOX_COUNT", 0)
    monkeypatch.setattr(OperatorCase, "draw_tile", tile_kept)
    monkeypatch.setattr(torch.Tensor, "backward", backward_wrongly)
    context = ran(name, monkeypatch, image_size="80x90")
    assert failed(context) == {"grad"}
    (check,) = said(context, "check", name="grad")
    assert check["detail"].startswith("row 40, col 45 (image 0, channel 1) is ")


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_not_read_has_no_gradient(name):
    layers, _, chosen = made(name, size=(90, 101))
    image = torch.ones((1, 2, 90, 101), dtype=torch.float64, requires_grad=True)
    result = layers(image)
    gradient = torch.zeros_like(result)
    everything = Box((0, result.shape[2]), (0, result.shape[3]))
    for rank in range(4):
        for box in chosen.select_outputs(1, rank):
            view_box(gradient, everything, box).fill_(1.0)
    result.backward(gradient)
    for rank in range(4):
        tile = chosen.owned.tile(rank)
        of_tile = view_box(image.grad, Box((0, 90), (0, 101)), tile).clone()
        read = chosen.select_read_boxes(1, tile)
        assert compare.check_unreached_pixels(of_tile, tile, 0.0, read) == WorstError.single(0.0)
        assert compare.check_unreached_pixels(of_tile, tile, 0.0, []).exceeds


@pytest.mark.parametrize("device", ["cpu", "late"])
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 2, 3, 4), (0, 1, 6, 7)])
@pytest.mark.parametrize("part", [1, 60, 1 << 20])
def test_a_stray_value_is_told_with_its_place(device, place, part, monkeypatch):
    monkeypatch.setattr(compare, "_PART", part)
    tile = Box((10, 17), (20, 28))
    values = torch.zeros((2, 3, 7, 8))
    values[place] = 2.5
    image, channel, row, col = place
    at = f"row {10 + row}, col {20 + col} (image {image}, channel {channel}) is 2.5, "
    got = values.to(torch.device(device))
    look = partial(compare.check_whole_tile, got, tile)
    assert look(0.25, whole_numbers=True) == WorstError.single(0.5, 0.25, at + "no whole number")
    assert not look(0.5, whole_numbers=True).exceeds
    assert not look(0.0, whole_numbers=False).exceeds
    stray = compare.check_unreached_pixels(got, tile, 0.25, [])
    assert stray == WorstError.single(2.5, 0.25, at + "and nothing reaches it")
    here = Box((10 + row, 11 + row), (20 + col, 21 + col))
    assert not compare.check_unreached_pixels(got, tile, 0.25, [here]).exceeds


def test_wrong_gradients_of_the_parameters_are_found(monkeypatch):
    backward = torch.Tensor.backward

    def backward_wrongly(self, gradient=None, **kwargs):
        backward(self, gradient, **kwargs)
        for one in parameters:
            one.grad.add_(1)

    parameters = []
    make = compute._open_case

    def make_and_keep(context):
        convolution, case = make(context)
        parameters.append(convolution.module.bias)
        return convolution, case

    monkeypatch.setattr(compute, "_open_case", make_and_keep)
    monkeypatch.setattr(torch.Tensor, "backward", backward_wrongly)
    assert failed(ran("halo.compute", monkeypatch)) == {"grad"}
