"""Tracing of layers to the graph of their operators.

Torch runs the forward of the layers once on symbols (torch.fx) and records the operators. Modules
that combine operators (sequences, residual sums, cells) need no second description, and a fused
layer computes the same as the layer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from spbench_core.layout.partition import Partition
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.fused.boundary_fill import PIXELWISE
from spbench_parallel.spatial.fused.graph import OperatorGraph, OperatorStep
from spbench_parallel.spatial.norm import TileNorm
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_parallel.spatial.tiling import Tiling

Operator = nn.Module | Callable[..., Any]
"""An operator over tiles, a pixelwise module, `operator.add` or `torch.cat`."""
WINDOWED = (SpatialConv2d, SpatialMaxPool2d, SpatialAvgPool2d)
_OPERATORS = (*WINDOWED, TileNorm, *PIXELWISE)


def trace_operators(
    layers: Mapping[str, nn.Module], tilings: Sequence[Tiling]
) -> tuple[OperatorGraph, tuple[Operator, ...]]:
    """Return the graph of a sequence of layers, and the operator of each step.

    Args:
        layers: By name. The first layer takes one tensor per tiling: one, or a tuple of two.
        tilings: The tiles of each input.

    Raises:
        TypeError: An operator cannot be fused.
        ValueError: An operator was created for other tiles than it gets.
    """
    sequence = (_LayerSequence if len(tilings) == 1 else _LayerSequenceOfTwo)(layers)
    builder = _GraphBuilder(sequence, [tiling.partition for tiling in tilings])
    for node in _Tracer().trace(sequence).nodes:
        builder.add_node(node)
    return builder.graph, tuple(builder.operators)


class _LayerSequence(nn.Module):
    """Layers one after the other."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)

    def forward(self, tensors: Any) -> Any:
        for layer in self.layers.values():
            tensors = layer(tensors)
        return tensors


class _LayerSequenceOfTwo(nn.Module):
    """Layers one after the other, from two tensors: torch.fx cannot trace a tuple."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.row = _LayerSequence(layers)  # part of the names in messages

    def forward(self, before: Any, older: Any) -> Any:
        return self.row((before, older))


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, _OPERATORS) or super().is_leaf_module(module, name)


@dataclass(slots=True)
class _GraphBuilder:
    """Builds an `OperatorGraph` from the nodes of torch's graph.

    Attributes:
        sequence: The layers.
        input_tiles: The tiles of each input.
        operators: The operators of the steps.
    """

    sequence: nn.Module
    input_tiles: Sequence[Partition]
    operators: list[Operator] = field(default_factory=list)
    _steps: list[OperatorStep] = field(default_factory=list)
    _value_tiles: list[Partition] = field(default_factory=list)
    _index_by_node: dict[fx.Node, int] = field(default_factory=dict)
    _output_indices: tuple[int, ...] = ()

    @property
    def graph(self) -> OperatorGraph:
        """The graph, after all nodes have been added."""
        return OperatorGraph(tuple(self.input_tiles), tuple(self._steps), self._output_indices)

    def add_node(self, node: fx.Node) -> None:
        """Add the operator of a node of torch's graph."""
        if node.op == "placeholder":
            self._add_value(node, self.input_tiles[len(self._value_tiles)])
        elif node.op == "call_module":
            module = self.sequence.get_submodule(str(node.target))
            self._add_module(node, module)
        elif node.op == "output":
            (outputs,) = node.args
            nodes = outputs if isinstance(outputs, tuple) else (outputs,)
            self._output_indices = self._find_indices(nodes)
        elif node.target is operator.add:
            self._add_step(node, operator.add, node.args)
        elif node.target is torch.cat and node.kwargs == {"dim": 1}:
            (joined_nodes,) = node.args
            self._add_step(node, torch.cat, joined_nodes)
        else:
            raise TypeError(f"{node.format_node()} cannot be fused")

    def _add_module(self, node: fx.Node, module: nn.Module) -> None:
        (index,) = self._find_indices(node.args)
        input_tiles = self._value_tiles[index]
        if isinstance(module, nn.Identity):
            self._index_by_node[node] = index
        elif isinstance(module, WINDOWED):
            _check_tiles(node, module.tiled.tiling.partition, input_tiles)
            self._add_step(node, module, node.args, module.output.partition, window=module.window)
        elif isinstance(module, TileNorm):
            _check_tiles(node, module.tiling.partition, input_tiles)
            self._add_step(node, module, node.args, statistics=True)
        elif isinstance(module, PIXELWISE):
            self._add_step(node, module, node.args)
        else:
            raise TypeError(f"{node.target} ({type(module).__name__}) cannot be fused")

    def _add_step(
        self,
        node: fx.Node,
        operator_: Operator,
        input_nodes: Any,
        output_tiles: Partition | None = None,
        **step_options: Any,
    ) -> None:
        indices = self._find_indices(input_nodes)
        output_tiles = output_tiles or self._value_tiles[indices[0]]
        self.operators.append(operator_)
        self._steps.append(OperatorStep(indices, output_tiles, **step_options))
        self._add_value(node, output_tiles)

    def _add_value(self, node: fx.Node, tiles: Partition) -> None:
        self._index_by_node[node] = len(self._value_tiles)
        self._value_tiles.append(tiles)

    def _find_indices(self, nodes: Any) -> tuple[int, ...]:
        return tuple(self._index_by_node[node] for node in nodes)


def _check_tiles(node: fx.Node, expected: Partition, actual: Partition) -> None:
    # Do not compare the ranks: statistics may use more ranks than those of the tiles.
    if (expected.grid, expected.height, expected.width) != (
        actual.grid,
        actual.height,
        actual.width,
    ):
        raise ValueError(
            f"{node.target} was made for other tiles than it gets; give it the output of what is "
            "before it as its tiling"
        )
