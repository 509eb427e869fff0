"""What becomes of imported operators where images are in tiles."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from mpi4py import MPI

from spbench_core.catalog import BENCHMARKS
from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import Map
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.build import build_stage
from spbench_parallel.models.builders import DenseBuilder, SpatialBuilder
from spbench_parallel.models.imported.model import import_network
from spbench_parallel.models.imported.tile_strategies import (
    TileStrategy,
    choose_strategies,
    count_gathered_values,
    is_same_over_tiles,
    list_gathered_operators,
)
from spbench_parallel.spatial.tile_buffer import PaddedReLU
from spbench_parallel.spatial.tiling import Tiling
from spbench_workers.benchmarks.model.network import check

pytestmark = pytest.mark.slow

IMAGE = Map(3, 32, 32)
TWO = Grid(1, 2)
FOUR = Grid(2, 2)


def network(name, image=IMAGE, **arguments):
    return import_network(f"own_networks:{name}", arguments, image, 0)


def names(nodes):
    return [node.name for node in nodes]


def test_operators_go_over_tiles_by_kind():
    found = {
        node.name: way for node, way in choose_strategies(network("Many").network, TWO).items()
    }
    wanted = {
        TileStrategy.TILES: [
            *("stem", "grouped", "norm", "max_pool2d", "groups", "each", "avg_pool2d"),
            *("layer", "mirrored", "larger", "interpolate"),
        ],
        TileStrategy.PIXELS: [
            *("hardswish", "add", "mul", "shuffle", "cat", "chunk", "getitem_1", "sub"),
            *("permute", "permute_1"),
        ],
        TileStrategy.MEAN: ["adaptive_avg_pool2d", "mean"],
        TileStrategy.WHOLE: ["squeeze", "relu", "excite", "sigmoid", "head"],
    }
    for way, several in wanted.items():
        assert {name: found[name] for name in several} == dict.fromkeys(several, way)


def test_what_asks_for_the_mode_is_by_pixel_all_the_same():
    found = {
        node.name: way for node, way in choose_strategies(network("Asking").network, TWO).items()
    }
    assert found["dropout"] is TileStrategy.PIXELS
    assert found["batch_norm"] is TileStrategy.GATHERED


def test_channels_may_be_last_or_in_groups():
    found = {
        node.name: way
        for node, way in choose_strategies(network("ChannelsLast").network, TWO).items()
    }
    assert TileStrategy.GATHERED not in found.values()
    wanted = {
        TileStrategy.TILES: ["norms_0", "wide_1", "narrow_0", "slope"],
        TileStrategy.PIXELS: [
            "permute",
            "drop",
            "softmax",
            "path",
            "layer_norm",
            "transpose",
            "mean",
        ],
        TileStrategy.GROUPS: ["view", "view_1"],
        TileStrategy.NUMBER: ["size_1"],
    }
    for way, several in wanted.items():
        assert {name: found[name] for name in several} == dict.fromkeys(several, way)


def test_what_repeats_pixels_fetches_them_where_tiles_do_not_end_at_them():
    even = network("UNet").network
    uneven = network("UNet", Map(3, 36, 44)).network
    ways = [
        [
            way
            for node, way in choose_strategies(one, FOUR).items()
            if node.name.startswith("interpolate")
        ]
        for one in (even, uneven)
    ]
    # Of 9x11 pixels that are made 18x22: 11 columns have no even halves.
    assert ways == [[TileStrategy.PIXELS] * 2, [TileStrategy.TILES, TileStrategy.PIXELS]]
    assert list_gathered_operators(uneven, [FOUR]) == []


def test_a_network_lives_no_longer_for_what_is_known_of_it():
    model = network("UNet")
    choose_strategies(model.network, FOUR)
    kept = weakref.ref(model.network)
    del model
    gc.collect()
    assert kept() is None


def test_what_is_gathered_is_counted():
    asking = network("Asking").network
    assert names(list_gathered_operators(asking, [TWO, FOUR])) == ["batch_norm"]
    assert count_gathered_values(asking, list_gathered_operators(asking, [FOUR])) == 4 * 32 * 32


def test_rows_of_gathered_pixels_are_gathered_still_and_one_vector_is_not():
    attention = network("Attention").network
    found = names(list_gathered_operators(attention, [TWO]))
    assert found[:3] == ["flatten", "transpose", "add"]
    last = [each.node.name for each in attention.operators]
    # The mean over the rows is the last one: the head gets a vector.
    assert found[-1] == "mean"
    assert last[last.index("mean") + 1 :] == ["head"]
    assert {"layers_0_self_attn", "layers_2_norm2"} <= set(found)


@pytest.mark.parametrize(
    "name", ["UNet", "Dense", "Attention", "Many", "Asking", "Resizing", "Padding"]
)
def test_one_tile_is_the_whole_image(name):
    model = network(name)
    tiling = Tiling.of_grid(MPI.COMM_SELF, Grid(1, 1), 32, 32)
    builders = DenseBuilder(), SpatialBuilder(tiling)
    whole, tiled = (
        build_stage(model, 0, len(model.layers), builder, seed=0, dtype=torch.float64)
        for builder in builders
    )
    images = torch.randn(2, *IMAGE.shape, dtype=torch.float64)
    assert list(whole.state_dict()) == list(tiled.state_dict())
    wanted = whole(images)
    found = tiled(images)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    wanted.square().sum().backward()
    found.square().sum().backward()
    gradients = dict(whole.named_parameters())
    for key, one in tiled.named_parameters():
        torch.testing.assert_close(one.grad, gradients[key].grad, rtol=0, atol=1e-10)
    for key, buffer in tiled.named_buffers():
        torch.testing.assert_close(buffer, dict(whole.named_buffers())[key], rtol=0, atol=1e-12)


def test_a_relu_leaves_room_for_the_one_operator_that_reads_it():
    ranks = SimpleNamespace(rank=1, size=4)
    builder = SpatialBuilder(Tiling.of_grid(ranks, FOUR, 32, 32))
    model = network("UNet")
    modules = build_stage(model, 0, len(model.layers), builder, seed=0).named_modules()
    found = [path.split(".")[-1] for path, one in modules if isinstance(one, PaddedReLU)]
    # The second ReLU of a block is read by pools and skips, or by what repeats pixels.
    blocks = ("down1", "down2", "middle", "up2", "up1")
    assert found == [f"{block}_relu_with_room" for block in blocks]


def test_a_smaller_image_is_the_same_over_tiles_as_long_as_tiles_have_their_halos():
    model = network("UNet", Map(3, 64, 64))
    assert is_same_over_tiles(model.resized(32, 32).network, model.network, FOUR)
    # At the lowest level tiles of 4x4 pixels become tiles of one, which neighbours read two of.
    assert not is_same_over_tiles(model.resized(8, 8).network, model.network, FOUR)
    # Three tiles of 16 columns have no even thirds: what repeats pixels is gathered.
    assert not is_same_over_tiles(model.resized(48, 48).network, model.network, Grid(1, 3))


def complete(**params):
    return BENCHMARKS["model.network"].complete(params)


def test_strict_refuses_what_is_gathered():
    case = {"network": "own_networks:Asking", "scheme": "sp", "split_size": 1, "grid": "1x2"}
    check(complete(**case))
    with pytest.raises(CannotRunError, match=r"own_networks.py:\d+: batch_norm is not there over"):
        check(complete(**case, strict=True))


def test_maps_of_fewer_pixels_than_tiles_are_refused():
    model = network("UNet", Map(3, 8, 8))
    builder = SpatialBuilder(Tiling.of_grid(MPI.COMM_SELF, Grid(1, 1), 8, 8))
    build_stage(model, 0, len(model.layers), builder, seed=0)
    grid = Grid(1, 4)
    tiling = Tiling(MPI.COMM_SELF, builder.tiling.partition)
    wide = type(tiling.partition)(grid, 8, 8, (0, 1, 2, 3), 4)
    with pytest.raises(CannotRunError, match="has 2x2 pixels, too few for a grid of 1x4"):
        build_stage(
            model, 0, len(model.layers), SpatialBuilder(Tiling(MPI.COMM_SELF, wide)), seed=0
        )


def test_a_stage_of_tiles_that_cannot_end_in_maps_is_refused_before_the_launch():
    case = {"network": "own_networks:Attention", "scheme": "sp"}
    # Its patches are maps, and all that follows is vectors.
    check(complete(**case, grid="1x2", split_size=2))
    with pytest.raises(CannotRunError, match="stage 0 of 5x1 tiles has to end in maps"):
        check(complete(**case, grid="5x1", split_size=2))
    with pytest.raises(CannotRunError, match="stage 1 of 1x2 tiles has to end in maps"):
        check(complete(**case, grid="1x2,1x2", split_size=3, spatial_size=2))
