"""The graph of the operators of layers, as their forward runs them."""

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
from spbench_parallel.spatial.fused.tracing import trace_operators
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.tiling import Tiling

COMM = SimpleNamespace(rank=1, size=4)
TILING = Tiling.of_grid(COMM, Grid(2, 2), 64, 64)


def make_layers(name, first, last, **config):
    network = make_model(name, image_size=(64, 64), num_classes=2, **config)
    stage = build_stage(network, first, last, SpatialBuilder(TILING), seed=1)
    tilings = [TILING.resized(data.height, data.width) for data in network.flows[first]]
    return dict(stage.named_children()), tilings


def test_traces_a_residual_block_with_a_stride():
    layers, tilings = make_layers("resnet", 2, 3, version=1, depth=8)
    graph, operators = trace_operators(layers, tilings)
    names = [
        getattr(step_operator, "__name__", type(step_operator).__name__)
        for step_operator in operators
    ]
    conv = "SpatialConv2d"
    norm = "SpatialBatchNorm2d"
    relu = "ReLU"
    padded = "PaddedReLU"  # a convolution with a window reads it
    assert names == [conv, norm, padded, conv, norm, conv, "add", relu]
    assert [step.input_indices for step in graph.steps] == [
        (0,),
        (1,),
        (2,),
        (3,),
        (4,),
        (0,),
        (5, 6),
        (7,),
    ]
    assert graph.output_indices == (8,)
    assert [step.statistics for step in graph.steps].count(True) == 2
    assert {step_operator.height for step_operator in graph.value_tiles[1:]} == {32}


def test_a_normal_cell_has_two_inputs_and_two_results():
    layers, tilings = make_layers("amoebanet", 5, 6, num_layers=3, num_filters=8)
    graph, operators = trace_operators(layers, tilings)
    assert len(graph.input_tiles) == len(graph.output_indices) == 2
    # The second result is the unchanged input: no operator works on it.
    assert graph.output_indices[1] == 0
    # One of the concatenations is in the operator that halves the older input.
    assert [operators.count(function) for function in (operator.add, torch.cat)] == [5, 2]
    windowed = [step for step in graph.steps if step.window and not step.window.is_pointwise]
    assert len(windowed) == 7 + 2  # and that halving's two convolutions
    group = FusedGraph(layers, tilings)
    assert all(table.list_received(COMM.rank) for table in group.input_transfers)


@pytest.mark.parametrize(
    "layer", [nn.Dropout(), nn.Conv2d(3, 3, 3), nn.Sequential(nn.ReLU(), nn.Softmax(1))]
)
def test_rejects_layers_that_cannot_be_fused(layer, messages):
    with messages.raises(TypeError):
        trace_operators({"layer": layer}, [TILING])


class Double(nn.Module):
    def forward(self, data):
        return torch.mul(data, 2.0)


def test_rejects_an_unknown_operation():
    with pytest.raises(TypeError, match="mul"):
        trace_operators({"layer": Double()}, [TILING])


@pytest.mark.parametrize("operator_type", [SpatialConv2d, SpatialBatchNorm2d])
def test_rejects_an_operator_for_other_tiles(operator_type, messages):
    arguments = (3, 3, 3) if operator_type is SpatialConv2d else (3,)
    layer = operator_type(*arguments, tiling=TILING.resized(32, 32))
    with messages.raises(ValueError):
        trace_operators({"layer": layer}, [TILING])


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
def test_groups_of_a_stage_exclude_the_last_layer(first, last, fused_layers, groups):
    network = make_model("resnet", image_size=(64, 64), num_classes=2, version=1, depth=8)
    assert list(map(list, group_layers(network, first, last, fused_layers))) == groups
