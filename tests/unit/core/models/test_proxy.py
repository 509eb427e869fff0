"""Proxies: what becomes smaller, and what must stay as it is."""

import pytest

from spbench_core.layout.balance import balance_layers
from spbench_core.layout.tiles import Grid
from spbench_core.models import proxy
from spbench_core.models.parts import Conv
from spbench_core.models.proxy import count_multiply_adds, make_proxy
from spbench_core.models.reach import count_kept_values
from spbench_core.models.registry import make_model

ONE = Grid(1, 1)
SQUARE = Grid(2, 2)


def resnet(size=128, **words):
    config = {"version": 2, "depth": 110} | words
    return make_model("resnet", image_size=(size, size), num_classes=10, **config)


def amoebanet(size, layers=18, filters=416):
    words = {"num_layers": layers, "num_filters": filters}
    return make_model("amoebanet", image_size=(size, size), num_classes=10, **words)


def proxied(whole, most, *grids, **words):
    balance = balance_layers(
        [float(one.multiply_adds) for one in whole.counts], [g.size for g in grids]
    )
    return make_proxy(whole, balance, grids, most, **words), balance


def test_what_is_small_enough_stands_for_itself():
    whole = resnet(32, depth=11)
    found, balance = proxied(whole, count_multiply_adds(whole), SQUARE, ONE)
    assert found.is_original
    assert (found.model, found.balance) == (whole, balance)
    assert str(found) == "all 5 layers of ResNet-11 v2 at 32x32"


@pytest.mark.parametrize("whole", [resnet(128), amoebanet(512)], ids=lambda one: one.name)
@pytest.mark.parametrize("most", [1e8, 1e9, 1e10])
def test_the_costliest_within_the_limit_is_taken(whole, most):
    found, _ = proxied(whole, most, SQUARE, ONE)
    less, _ = proxied(whole, most / 4, SQUARE, ONE)
    assert found.multiply_adds <= most * 1.2
    assert less.multiply_adds <= found.multiply_adds
    assert not found.is_original


def test_a_proxy_keeps_no_more_than_there_is_room_for():
    """A long measurement would let one process compute what it cannot hold."""
    whole = resnet(1024)
    most = float(count_multiply_adds(whole))
    room = count_kept_values(whole) / 20
    found, _ = proxied(whole, most, SQUARE, ONE, max_kept_values=room)
    assert room / 4 < count_kept_values(found.model) <= room
    assert proxied(whole, most, SQUARE, ONE)[0].is_original


def test_layers_images_and_filters_shrink_and_kinds_and_stages_stay():
    whole = resnet(128)
    found, balance = proxied(whole, 0, SQUARE, ONE)
    assert len(found.balance) == len(balance)
    assert sum(found.balance) == len(found.model.layers)
    # A stem and a head; in each stack the block that changes the shape and one that does not, and
    # one of those that the cut between the stages has left alone.
    assert len(found.model.layers) == 2 + 3 * 2 + 1
    assert (found.model.image.height, found.filter_divisor) == (32, 16)
    assert found.model.flows[-1] == whole.flows[-1]
    assert str(found).startswith("9 of 38 layers of ResNet-110 v2 with 1/16 of its filters at 32x")


@pytest.mark.parametrize("grid", [SQUARE, Grid(1, 4), Grid(4, 1)], ids=str)
def test_halos_stay_as_wide_and_come_from_the_next_tile(grid):
    # Kernels of 1x7 and 7x1 read three pixels beyond, at the smallest map, a 32nd of the image.
    found, _ = proxied(amoebanet(1024, 3, 64), 0, grid)
    rows = found.model.image.height // 32
    cols = found.model.image.width // 32
    assert rows // grid.rows >= 3
    assert cols // grid.cols >= 3
    assert max(rows // grid.rows, cols // grid.cols) < 2 * 3 * max(grid.rows, grid.cols)


def test_tiles_too_small_for_their_halos_before_are_left_as_they_are():
    whole = amoebanet(64, 3, 64)
    found, _ = proxied(whole, 0, SQUARE)
    assert found.model.image == whole.image


def test_odd_sides_stay_odd():
    found, _ = proxied(resnet(257), 0, SQUARE, ONE)
    assert found.model.image.height % 2 == 1
    assert found.model.image.height < 257


def test_fused_layers_stay_together():
    found, _ = proxied(resnet(128), 0, SQUARE, ONE, fused_layers=4)
    assert found.balance[0] >= 4
    alone, _ = proxied(resnet(128), 0, SQUARE, ONE)
    assert len(found.model.layers) > len(alone.model.layers)


@pytest.mark.parametrize(
    ("conv", "by", "thinned"),
    [
        (Conv(48, 3), 16, Conv(3, 3)),
        (Conv(64, 3, groups=64), 4, Conv(16, 3, groups=16)),
        (Conv(48, 3, groups=8), 4, Conv(12, 3, groups=2)),
    ],
)
def test_a_thinned_convolution_has_whole_groups(conv, by, thinned):
    assert proxy._thin_part(conv, by) == thinned
