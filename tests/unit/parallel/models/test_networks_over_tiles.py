"""Strategies of imported operators if images are in tiles."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from mpi4py import MPI

from spbench_core.catalog import BENCHMARKS
from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import MapShape
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

IMAGE = MapShape(3, 32, 32)
TWO = Grid(1, 2)
FOUR = Grid(2, 2)


def import_own_network(name, image=IMAGE, **arguments):
    return import_network(f"support.networks.own_networks:{name}", arguments, image, 0)


def list_names(nodes):
    return [node.name for node in nodes]


def test_chooses_strategies_by_the_kind_of_operators():
    strategies = {
        node.name: strategy
        for node, strategy in choose_strategies(
            import_own_network("ManyOperators").network, TWO
        ).items()
    }
    expected = {
        TileStrategy.TILES: [
            *("stem", "grouped", "norm", "max_pool2d", "groups", "per_image", "avg_pool2d"),
            *("layer", "mirrored", "larger", "interpolate"),
        ],
        TileStrategy.PIXELS: [
            *("hardswish", "add", "mul", "shuffle", "cat", "chunk", "getitem_1", "sub"),
            *("permute", "permute_1"),
        ],
        TileStrategy.MEAN: ["adaptive_avg_pool2d", "mean"],
        TileStrategy.WHOLE: ["squeeze", "relu", "excite", "sigmoid", "head"],
    }
    for strategy, operators in expected.items():
        assert {name: strategies[name] for name in operators} == dict.fromkeys(operators, strategy)


def test_operators_that_read_the_mode_can_be_by_pixel():
    strategies = {
        node.name: strategy
        for node, strategy in choose_strategies(
            import_own_network("ModeReader").network, TWO
        ).items()
    }
    assert strategies["dropout"] is TileStrategy.PIXELS
    assert strategies["batch_norm"] is TileStrategy.GATHERED


def test_supports_channels_last_and_groups():
    strategies = {
        node.name: strategy
        for node, strategy in choose_strategies(
            import_own_network("ChannelsLast").network, TWO
        ).items()
    }
    assert TileStrategy.GATHERED not in strategies.values()
    expected = {
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
    for strategy, operators in expected.items():
        assert {name: strategies[name] for name in operators} == dict.fromkeys(operators, strategy)


def test_repeating_pixels_fetches_them_at_uneven_tiles():
    even = import_own_network("UNet").network
    uneven = import_own_network("UNet", MapShape(3, 36, 44)).network
    strategies = [
        [
            strategy
            for node, strategy in choose_strategies(network, FOUR).items()
            if node.name.startswith("interpolate")
        ]
        for network in (even, uneven)
    ]
    # 9x11 pixels become 18x22: 11 columns have no even halves.
    assert strategies == [[TileStrategy.PIXELS] * 2, [TileStrategy.TILES, TileStrategy.PIXELS]]
    assert list_gathered_operators(uneven, [FOUR]) == []


def test_cached_strategies_do_not_keep_a_network_alive():
    model = import_own_network("UNet")
    choose_strategies(model.network, FOUR)
    reference = weakref.ref(model.network)
    del model
    gc.collect()
    assert reference() is None


def test_counts_gathered_values():
    asking = import_own_network("ModeReader").network
    assert list_names(list_gathered_operators(asking, [TWO, FOUR])) == ["batch_norm"]
    assert count_gathered_values(asking, list_gathered_operators(asking, [FOUR])) == 4 * 32 * 32


def test_rows_of_gathered_pixels_stay_gathered():
    attention = import_own_network("Attention").network
    gathered = list_names(list_gathered_operators(attention, [TWO]))
    assert gathered[:3] == ["flatten", "transpose", "add"]
    operators = [operator.node.name for operator in attention.operators]
    # The mean over the rows is the last one: the head receives a vector.
    assert gathered[-1] == "mean"
    assert operators[operators.index("mean") + 1 :] == ["head"]
    assert {"layers_0_self_attn", "layers_2_norm2"} <= set(gathered)


@pytest.mark.parametrize(
    "name", ["UNet", "Dense", "Attention", "ManyOperators", "ModeReader", "Resizing", "Padding"]
)
def test_one_tile_equals_the_complete_image(name):
    model = import_own_network(name)
    tiling = Tiling.of_grid(MPI.COMM_SELF, Grid(1, 1), 32, 32)
    builders = DenseBuilder(), SpatialBuilder(tiling)
    complete, tiled = (
        build_stage(model, 0, len(model.layers), builder, seed=0, dtype=torch.float64)
        for builder in builders
    )
    images = torch.randn(2, *IMAGE.shape, dtype=torch.float64)
    assert list(complete.state_dict()) == list(tiled.state_dict())
    expected = complete(images)
    output = tiled(images)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    expected.square().sum().backward()
    output.square().sum().backward()
    gradients = dict(complete.named_parameters())
    for key, parameter in tiled.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[key].grad, rtol=0, atol=1e-10)
    for key, buffer in tiled.named_buffers():
        torch.testing.assert_close(buffer, dict(complete.named_buffers())[key], rtol=0, atol=1e-12)


def test_pads_a_relu_with_one_windowed_reader():
    ranks = SimpleNamespace(rank=1, size=4)
    builder = SpatialBuilder(Tiling.of_grid(ranks, FOUR, 32, 32))
    model = import_own_network("UNet")
    modules = build_stage(model, 0, len(model.layers), builder, seed=0).named_modules()
    padded = [path.split(".")[-1] for path, module in modules if isinstance(module, PaddedReLU)]
    # The second ReLU of a block is read by pools and skips, or by operators that repeat pixels.
    blocks = ("down1", "down2", "middle", "up2", "up1")
    assert padded == [f"{block}_relu_with_halo_buffer" for block in blocks]


def test_a_smaller_image_is_the_same_if_tiles_have_halos():
    model = import_own_network("UNet", MapShape(3, 64, 64))
    assert is_same_over_tiles(model.resized(32, 32).network, model.network, FOUR)
    # At the lowest level, tiles of 4x4 pixels become tiles of one, of which neighbours read two.
    assert not is_same_over_tiles(model.resized(8, 8).network, model.network, FOUR)
    # Three tiles of 16 columns have no even thirds: operators that repeat pixels are gathered.
    assert not is_same_over_tiles(model.resized(48, 48).network, model.network, Grid(1, 3))


def complete_params(**params):
    return BENCHMARKS["model.network"].complete(params)


def test_strict_rejects_gathered_operators():
    case = {
        "network": "support.networks.own_networks:ModeReader",
        "scheme": "sp",
        "split_size": 1,
        "grid": "1x2",
    }
    check(complete_params(**case))
    with pytest.raises(CannotRunError, match=r"own_networks.py:\d+: batch_norm is not there over"):
        check(complete_params(**case, strict=True))


def test_rejects_maps_with_fewer_pixels_than_tiles():
    model = import_own_network("UNet", MapShape(3, 8, 8))
    builder = SpatialBuilder(Tiling.of_grid(MPI.COMM_SELF, Grid(1, 1), 8, 8))
    build_stage(model, 0, len(model.layers), builder, seed=0)
    grid = Grid(1, 4)
    tiling = Tiling(MPI.COMM_SELF, builder.tiling.partition)
    wide = type(tiling.partition)(grid, 8, 8, (0, 1, 2, 3), 4)
    with pytest.raises(CannotRunError, match="has 2x2 pixels, too few for a grid of 1x4"):
        build_stage(
            model, 0, len(model.layers), SpatialBuilder(Tiling(MPI.COMM_SELF, wide)), seed=0
        )


def test_rejects_a_stage_of_tiles_that_ends_in_vectors(messages):
    case = {"network": "support.networks.own_networks:Attention", "scheme": "sp"}
    # Its patches are maps, and all later values are vectors.
    check(complete_params(**case, grid="1x2", split_size=2))
    with messages.raises(CannotRunError):
        check(complete_params(**case, grid="5x1", split_size=2))
    with messages.raises(CannotRunError):
        check(complete_params(**case, grid="1x2,1x2", split_size=3, spatial_size=2))
