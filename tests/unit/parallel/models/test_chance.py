"""Dropout operators: shares of dropped values, and equal draws on tiles."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from spbench_core.layout.tiles import Grid
from spbench_parallel.models.imported.stochastic import (
    DropBatch,
    DropByPosition,
    DropByPositionMode,
    StochasticOp,
)

IMAGES = DropBatch(3, 7, ((0, 0), (0, 1), (1, 0)))
SHAPE = (4, 30, 41)
UNITS = "value", "channel", "image"


def make_drop(unit="value", shape=SHAPE, box=None, share=0.3, batch=IMAGES, index=2):
    drop = DropByPosition(StochasticOp(index, share, unit), shape, box)
    drop.batch = batch
    return drop


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_drops_the_share_and_scales_the_other_values(share):
    images = DropBatch(1, 0, tuple((0, index) for index in range(20)))
    dropped = make_drop(share=share, batch=images)(torch.ones(20, *SHAPE, dtype=torch.float64))
    assert float((dropped == 0).double().mean()) == pytest.approx(share, abs=0.01)
    assert set(dropped.unique().tolist()) == {0.0, 1 / (1 - share)}
    # In each column and in each row.
    for axes in ((0, 1, 2), (0, 1, 3)):
        assert ((dropped == 0).double().mean(axes) - share).abs().max() < 0.08


@pytest.mark.parametrize("unit", UNITS)
def test_a_tile_drops_the_same_as_the_complete_map(unit):
    torch.manual_seed(1)
    values = torch.randn(3, *SHAPE)
    complete = make_drop(unit)(values)
    for grid in (Grid(2, 2), Grid(3, 1), Grid(1, 5)):
        for tile in range(grid.size):
            box = grid.tile(tile, *SHAPE[1:])
            cut = (..., slice(*box.rows), slice(*box.cols))
            assert torch.equal(make_drop(unit, box=box)(values[cut]), complete[cut])


def test_a_channels_last_tile_drops_the_same_as_the_map():
    values = torch.ones(3, 30, 41, 4)
    shape = (30, 41, 4)
    complete = make_drop(shape=shape)(values)
    assert float((complete == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    for tile in range(6):
        box = Grid(2, 3).tile(tile, 30, 41)
        cut = slice(None), slice(*box.rows), slice(*box.cols)
        part = DropByPosition(StochasticOp(2, 0.3, "value"), shape, box, channels_last=True)
        part.batch = IMAGES
        assert torch.equal(part(values[cut]), complete[cut])


@pytest.mark.parametrize("unit", UNITS)
def test_a_part_of_the_images_drops_the_same(unit):
    values = torch.ones(3, *SHAPE)
    last = replace(IMAGES, images=IMAGES.images[1:])
    assert torch.equal(make_drop(unit, batch=last)(values[1:]), make_drop(unit)(values)[1:])


def test_drops_complete_channels_and_images():
    many = replace(IMAGES, images=tuple((0, index) for index in range(50)))
    by_channel = make_drop("channel", batch=many)(torch.ones(50, *SHAPE)).flatten(2)
    assert torch.equal(by_channel.amin(2), by_channel.amax(2))
    assert 0.2 < float((by_channel == 0).float().mean()) < 0.4
    by_image = make_drop("image", batch=many)(torch.ones(50, *SHAPE)).flatten(1)
    assert torch.equal(by_image.amin(1), by_image.amax(1))
    assert 0 < int((by_image[:, 0] == 0).sum()) < 50


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": replace(IMAGES, seed=4)},
        {"batch": replace(IMAGES, step=8)},
        {"batch": replace(IMAGES, images=((0, 5), (0, 6), (1, 4)))},
        {"index": 3},
    ],
)
def test_seeds_steps_images_and_operators_draw_differently(changes):
    values = torch.ones(3, *SHAPE)
    equal_share = (make_drop()(values) == make_drop(**changes)(values)).float().mean((1, 2, 3))
    # The probability that two independent draws agree: 0.3 squared plus 0.7 squared.
    assert (equal_share - 0.58).abs().max() < 0.05


def test_drops_nothing_in_evaluation():
    values = torch.randn(3, *SHAPE)
    assert torch.equal(make_drop().eval()(values), values)


@pytest.mark.parametrize("shape", [(9,), (5, 6), (2, 3, 4, 5)])
def test_drops_tensors_that_are_not_maps(shape):
    dropped = make_drop(shape=shape)(torch.ones(3, *shape))
    assert dropped.shape == (3, *shape)
    assert 0 < int((dropped == 0).sum()) < dropped.numel()


class UserNetwork(nn.Module):
    """A network with each kind of dropout, in an order of the user."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.3)
        self.never = nn.Dropout(0.0)

    def forward(self, values):
        values = self.never(self.drop(values))
        values = functional.dropout2d(values, 0.3, self.training)
        if self.training:
            mask = values.new_empty(len(values), 1, 1, 1).bernoulli_(0.7)
            values = values * mask.div_(0.7)
        return torch.dropout(values, 0.3, self.training)


def test_the_user_module_drops_the_same_as_ranks():
    values = torch.randn(3, *SHAPE, dtype=torch.float64)
    with DropByPositionMode(IMAGES):
        dropped = UserNetwork()(values)
        assert torch.equal(UserNetwork().eval()(values), values)
    expected = values
    for index, unit in enumerate(("value", "channel", "image", "value")):
        expected = make_drop(unit, index=index)(expected)
    torch.testing.assert_close(dropped, expected, rtol=1e-14, atol=0)
