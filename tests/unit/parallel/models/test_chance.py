"""What operators of chance drop: as much as they say, and on tiles what the whole image drops."""

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


def drop_of(unit="value", shape=SHAPE, box=None, share=0.3, drawn=IMAGES, index=2):
    made = DropByPosition(StochasticOp(index, share, unit), shape, box)
    made.batch = drawn
    return made


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_is_dropped_and_the_rest_is_larger_by_as_much(share):
    images = DropBatch(1, 0, tuple((0, at) for at in range(20)))
    found = drop_of(share=share, drawn=images)(torch.ones(20, *SHAPE, dtype=torch.float64))
    assert float((found == 0).double().mean()) == pytest.approx(share, abs=0.01)
    assert set(found.unique().tolist()) == {0.0, 1 / (1 - share)}
    # In each column and each row alike.
    for axes in ((0, 1, 2), (0, 1, 3)):
        assert ((found == 0).double().mean(axes) - share).abs().max() < 0.08


@pytest.mark.parametrize("unit", UNITS)
def test_a_tile_drops_what_the_whole_map_drops(unit):
    torch.manual_seed(1)
    values = torch.randn(3, *SHAPE)
    whole = drop_of(unit)(values)
    for grid in (Grid(2, 2), Grid(3, 1), Grid(1, 5)):
        for tile in range(grid.size):
            box = grid.tile(tile, *SHAPE[1:])
            cut = (..., slice(*box.rows), slice(*box.cols))
            assert torch.equal(drop_of(unit, box=box)(values[cut]), whole[cut])


def test_a_tile_whose_channels_are_last_drops_what_the_whole_does():
    values = torch.ones(3, 30, 41, 4)
    shape = (30, 41, 4)
    whole = drop_of(shape=shape)(values)
    assert float((whole == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    for tile in range(6):
        box = Grid(2, 3).tile(tile, 30, 41)
        cut = slice(None), slice(*box.rows), slice(*box.cols)
        part = DropByPosition(StochasticOp(2, 0.3, "value"), shape, box, channels_last=True)
        part.batch = IMAGES
        assert torch.equal(part(values[cut]), whole[cut])


@pytest.mark.parametrize("unit", UNITS)
def test_some_images_drop_what_they_drop_among_others(unit):
    values = torch.ones(3, *SHAPE)
    last = replace(IMAGES, images=IMAGES.images[1:])
    assert torch.equal(drop_of(unit, drawn=last)(values[1:]), drop_of(unit)(values)[1:])


def test_channels_and_images_are_dropped_whole():
    many = replace(IMAGES, images=tuple((0, at) for at in range(50)))
    by_channel = drop_of("channel", drawn=many)(torch.ones(50, *SHAPE)).flatten(2)
    assert torch.equal(by_channel.amin(2), by_channel.amax(2))
    assert 0.2 < float((by_channel == 0).float().mean()) < 0.4
    by_image = drop_of("image", drawn=many)(torch.ones(50, *SHAPE)).flatten(1)
    assert torch.equal(by_image.amin(1), by_image.amax(1))
    assert 0 < int((by_image[:, 0] == 0).sum()) < 50


@pytest.mark.parametrize(
    "other",
    [
        {"drawn": replace(IMAGES, seed=4)},
        {"drawn": replace(IMAGES, step=8)},
        {"drawn": replace(IMAGES, images=((0, 5), (0, 6), (1, 4)))},
        {"index": 3},
    ],
)
def test_seeds_steps_images_and_operators_have_draws_of_their_own(other):
    values = torch.ones(3, *SHAPE)
    alike = (drop_of()(values) == drop_of(**other)(values)).float().mean((1, 2, 3))
    # As alike as chance lets them be: 0.3 and 0.7, squared.
    assert (alike - 0.58).abs().max() < 0.05


def test_nothing_is_dropped_in_evaluation():
    values = torch.randn(3, *SHAPE)
    assert torch.equal(drop_of().eval()(values), values)


@pytest.mark.parametrize("shape", [(9,), (5, 6), (2, 3, 4, 5)])
def test_what_is_no_map_is_dropped_too(shape):
    found = drop_of(shape=shape)(torch.ones(3, *shape))
    assert found.shape == (3, *shape)
    assert 0 < int((found == 0).sum()) < found.numel()


class Own(nn.Module):
    """A network with each kind of chance, in its own order."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.3)
        self.never = nn.Dropout(0.0)

    def forward(self, values):
        values = self.never(self.drop(values))
        values = functional.dropout2d(values, 0.3, self.training)
        if self.training:
            kept = values.new_empty(len(values), 1, 1, 1).bernoulli_(0.7)
            values = values * kept.div_(0.7)
        return torch.dropout(values, 0.3, self.training)


def test_the_users_own_module_drops_what_ranks_drop():
    values = torch.randn(3, *SHAPE, dtype=torch.float64)
    with DropByPositionMode(IMAGES):
        found = Own()(values)
        assert torch.equal(Own().eval()(values), values)
    wanted = values
    for index, unit in enumerate(("value", "channel", "image", "value")):
        wanted = drop_of(unit, index=index)(wanted)
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=0)
