"""Proxies: properties that shrink and properties that stay."""

import pytest

from spbench_core.layout.balance import balance_layers
from spbench_core.layout.tiles import Grid
from spbench_core.models import proxy
from spbench_core.models.parts import Conv
from spbench_core.models.proxy import count_multiply_adds, make_proxy
from spbench_core.models.reach import count_kept_values
from spbench_core.models.registry import make_model

SINGLE_TILE = Grid(1, 1)
SQUARE = Grid(2, 2)


def make_resnet(size=128, **changes):
    config = {"version": 2, "depth": 110} | changes
    return make_model("resnet", image_size=(size, size), num_classes=10, **config)


def make_amoebanet(size, layers=18, filters=416):
    config = {"num_layers": layers, "num_filters": filters}
    return make_model("amoebanet", image_size=(size, size), num_classes=10, **config)


def make_balanced_proxy(original, limit, *grids, **options):
    balance = balance_layers(
        [float(layer.multiply_adds) for layer in original.counts], [grid.size for grid in grids]
    )
    return make_proxy(original, balance, grids, limit, **options), balance


def test_a_small_model_is_its_own_proxy(messages):
    original = make_resnet(32, depth=11)
    small_proxy, balance = make_balanced_proxy(
        original, count_multiply_adds(original), SQUARE, SINGLE_TILE
    )
    assert small_proxy.is_original
    assert (small_proxy.model, small_proxy.balance) == (original, balance)
    messages.check(str(small_proxy))


@pytest.mark.slow
@pytest.mark.parametrize(
    "original", [make_resnet(128), make_amoebanet(512)], ids=lambda model: model.name
)
@pytest.mark.parametrize("limit", [1e8, 1e9, 1e10])
def test_a_proxy_is_the_most_expensive_within_the_limit(original, limit):
    larger, _ = make_balanced_proxy(original, limit, SQUARE, SINGLE_TILE)
    smaller, _ = make_balanced_proxy(original, limit / 4, SQUARE, SINGLE_TILE)
    assert larger.multiply_adds <= limit * 1.2
    assert smaller.multiply_adds <= larger.multiply_adds
    assert not larger.is_original


def test_a_proxy_keeps_values_up_to_the_limit():
    """Without this limit, a long measurement allows more values than memory holds."""
    original = make_resnet(1024)
    max_multiply_adds = float(count_multiply_adds(original))
    max_kept_values = count_kept_values(original) / 20
    limited, _ = make_balanced_proxy(
        original, max_multiply_adds, SQUARE, SINGLE_TILE, max_kept_values=max_kept_values
    )
    assert max_kept_values / 4 < count_kept_values(limited.model) <= max_kept_values
    assert make_balanced_proxy(original, max_multiply_adds, SQUARE, SINGLE_TILE)[0].is_original


def test_shrinks_sizes_but_keeps_layer_kinds_and_stages(messages):
    original = make_resnet(128)
    smallest, balance = make_balanced_proxy(original, 0, SQUARE, SINGLE_TILE)
    assert len(smallest.balance) == len(balance)
    assert sum(smallest.balance) == len(smallest.model.layers)
    # A stem and a head. In each stack one block that changes the shape and one that does not, and
    # one more block where the boundary between the stages divides a stack.
    assert len(smallest.model.layers) == 2 + 3 * 2 + 1
    assert (smallest.model.image.height, smallest.filter_divisor) == (32, 16)
    assert smallest.model.flows[-1] == original.flows[-1]
    messages.check(str(smallest))


@pytest.mark.parametrize("grid", [SQUARE, Grid(1, 4), Grid(4, 1)], ids=str)
def test_halos_keep_their_width_and_reach_only_the_next_tile(grid):
    # Kernels of 1x7 and 7x1 read a halo of three pixels at the smallest map, 1/32 of the image.
    smallest, _ = make_balanced_proxy(make_amoebanet(1024, 3, 64), 0, grid)
    rows = smallest.model.image.height // 32
    cols = smallest.model.image.width // 32
    assert rows // grid.rows >= 3
    assert cols // grid.cols >= 3
    assert max(rows // grid.rows, cols // grid.cols) < 2 * 3 * max(grid.rows, grid.cols)


def test_keeps_images_with_tiles_smaller_than_their_halos():
    original = make_amoebanet(64, 3, 64)
    smallest, _ = make_balanced_proxy(original, 0, SQUARE)
    assert smallest.model.image == original.image


def test_odd_sides_stay_odd():
    smallest, _ = make_balanced_proxy(make_resnet(257), 0, SQUARE, SINGLE_TILE)
    assert smallest.model.image.height % 2 == 1
    assert smallest.model.image.height < 257


def test_fused_layers_stay_together():
    fused, _ = make_balanced_proxy(make_resnet(128), 0, SQUARE, SINGLE_TILE, fused_layers=4)
    assert fused.balance[0] >= 4
    unfused, _ = make_balanced_proxy(make_resnet(128), 0, SQUARE, SINGLE_TILE)
    assert len(fused.model.layers) > len(unfused.model.layers)


@pytest.mark.parametrize(
    ("conv", "divisor", "thinned"),
    [
        (Conv(48, 3), 16, Conv(3, 3)),
        (Conv(64, 3, groups=64), 4, Conv(16, 3, groups=16)),
        (Conv(48, 3, groups=8), 4, Conv(12, 3, groups=2)),
    ],
)
def test_a_thinned_convolution_has_whole_groups(conv, divisor, thinned):
    assert proxy._thin_part(conv, divisor) == thinned
