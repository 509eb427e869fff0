"""The graph of layers' operators, as their own forward runs them."""

import operator
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from spbench_core.layout.tiles import Grid
from spbench_core.models.registry import make_model
from spbench_core.models.stages import group_layers
from spbench_parallel.models.build import build_stage
from spbench_parallel.models.builders import SpatialBuilder
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.fused.graph_blocks import FusedGraph
from spbench_parallel.spatial.fused.tracing import trace
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.tiling import Tiling

COMM = SimpleNamespace(rank=1, size=4)
TILING = Tiling.of_grid(COMM, Grid(2, 2), 64, 64)


def layers_of(name, first, last, **config):
    network = make_model(name, image_size=(64, 64), num_classes=2, **config)
    stage = build_stage(network, first, last, SpatialBuilder(TILING), seed=1)
    tilings = [TILING.resized(data.height, data.width) for data in network.flows[first]]
    return dict(stage.named_children()), tilings


def test_a_residual_block_with_a_stride():
    layers, tilings = layers_of("resnet", 2, 3, version=1, depth=8)
    graph, operators = trace(layers, tilings)
    names = [getattr(one, "__name__", type(one).__name__) for one in operators]
    conv = "SpatialConv2d"
    norm = "SpatialBatchNorm2d"
    relu = "ReLU"
    padded = "PaddedReLU"  # a convolution with a window reads it
    assert names == [conv, norm, padded, conv, norm, conv, "add", relu]
    assert [step.reads for step in graph.steps] == [
        (0,),
        (1,),
        (2,),
        (3,),
        (4,),
        (0,),
        (5, 6),
        (7,),
    ]
    assert graph.results == (8,)
    assert [step.statistics for step in graph.steps].count(True) == 2
    assert {one.height for one in graph.values[1:]} == {32}


def test_a_normal_cell_exchanges_two_inputs_and_gives_two():
    layers, tilings = layers_of("amoebanet", 5, 6, num_layers=3, num_filters=8)
    graph, operators = trace(layers, tilings)
    assert len(graph.inputs) == len(graph.results) == 2
    # What is given on besides is the input as it is: nothing works on it.
    assert graph.results[1] == 0
    # One of the concatenations is in what halves the older input.
    assert [operators.count(one) for one in (operator.add, torch.cat)] == [5, 2]
    windowed = [step for step in graph.steps if step.window and not step.window.is_pointwise]
    assert len(windowed) == 7 + 2  # and that halving's two convolutions
    group = FusedGraph(layers, tilings)
    assert all(table.list_received(COMM.rank) for table in group.tables)


@pytest.mark.parametrize(
    "layer", [nn.Dropout(), nn.Conv2d(3, 3, 3), nn.Sequential(nn.ReLU(), nn.Softmax(1))]
)
def test_what_cannot_be_fused(layer):
    with pytest.raises(TypeError, match="cannot be fused"):
        trace({"layer": layer}, [TILING])


class Doubled(nn.Module):
    def forward(self, data):
        return torch.mul(data, 2.0)


def test_an_operation_that_is_not_known():
    with pytest.raises(TypeError, match="mul"):
        trace({"layer": Doubled()}, [TILING])


@pytest.mark.parametrize("made", [SpatialConv2d, SpatialBatchNorm2d])
def test_an_operator_for_other_tiles(made):
    words = (3, 3, 3) if made is SpatialConv2d else (3,)
    layer = made(*words, tiling=TILING.resized(32, 32))
    with pytest.raises(ValueError, match="made for other tiles"):
        trace({"layer": layer}, [TILING])


@pytest.mark.parametrize(
    ("first", "last", "fused_layers", "groups"),
    [
        (0, 5, 1, [[0], [1], [2], [3]]),
        (0, 5, 3, [[0, 1, 2], [3]]),
        (1, 4, 2, [[1, 2], [3]]),
        (0, 2, 9, [[0, 1]]),
        (4, 5, 2, []),
    ],
)
def test_groups_of_a_stage_leave_out_the_last_layer(first, last, fused_layers, groups):
    network = make_model("resnet", image_size=(64, 64), num_classes=2, version=1, depth=8)
    assert list(map(list, group_layers(network, first, last, fused_layers))) == groups
