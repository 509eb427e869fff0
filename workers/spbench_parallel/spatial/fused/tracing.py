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


def trace(
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

    def forward(self, data: Any) -> Any:
        for layer in self.layers.values():
            data = layer(data)
        return data


class _LayerSequenceOfTwo(nn.Module):
    """Layers one after the other, from two tensors: torch.fx cannot trace a tuple."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.row = _LayerSequence(layers)

    def forward(self, before: Any, older: Any) -> Any:
        return self.row((before, older))


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, _OPERATORS) or super().is_leaf_module(module, name)


@dataclass(slots=True)
class _GraphBuilder:
    """Builds an `OperatorGraph` from the nodes of torch's graph.

    Attributes:
        row: The layers.
        inputs: The tiles of each input.
        operators: The operators of the steps.
    """

    row: nn.Module
    inputs: Sequence[Partition]
    operators: list[Operator] = field(default_factory=list)
    _steps: list[OperatorStep] = field(default_factory=list)
    _values: list[Partition] = field(default_factory=list)
    _indices: dict[fx.Node, int] = field(default_factory=dict)
    _results: tuple[int, ...] = ()

    @property
    def graph(self) -> OperatorGraph:
        """The graph, after all nodes have been added."""
        return OperatorGraph(tuple(self.inputs), tuple(self._steps), self._results)

    def add_node(self, node: fx.Node) -> None:
        """Add the operator of a node of torch's graph."""
        if node.op == "placeholder":
            self._add_value(node, self.inputs[len(self._values)])
        elif node.op == "call_module":
            module = self.row.get_submodule(str(node.target))
            self._add_module(node, module)
        elif node.op == "output":
            (inputs,) = node.args
            nodes = inputs if isinstance(inputs, tuple) else (inputs,)
            self._results = self._find_indices(nodes)
        elif node.target is operator.add:
            self._add_step(node, operator.add, node.args)
        elif node.target is torch.cat and node.kwargs == {"dim": 1}:
            (inputs,) = node.args
            self._add_step(node, torch.cat, inputs)
        else:
            raise TypeError(f"{node.format_node()} cannot be fused")

    def _add_module(self, node: fx.Node, module: nn.Module) -> None:
        (index,) = self._find_indices(node.args)
        tiles = self._values[index]
        if isinstance(module, nn.Identity):
            self._indices[node] = index
        elif isinstance(module, WINDOWED):
            _check_tiles(node, module.tiled.tiling.partition, tiles)
            self._add_step(node, module, node.args, module.output.partition, window=module.window)
        elif isinstance(module, TileNorm):
            _check_tiles(node, module.tiling.partition, tiles)
            self._add_step(node, module, node.args, statistics=True)
        elif isinstance(module, PIXELWISE):
            self._add_step(node, module, node.args)
        else:
            raise TypeError(f"{node.target} ({type(module).__name__}) cannot be fused")

    def _add_step(
        self,
        node: fx.Node,
        operator_: Operator,
        inputs: Any,
        output: Partition | None = None,
        **kind: Any,
    ) -> None:
        indices = self._find_indices(inputs)
        output = output or self._values[indices[0]]
        self.operators.append(operator_)
        self._steps.append(OperatorStep(indices, output, **kind))
        self._add_value(node, output)

    def _add_value(self, node: fx.Node, partition: Partition) -> None:
        self._indices[node] = len(self._values)
        self._values.append(partition)

    def _find_indices(self, nodes: Any) -> tuple[int, ...]:
        return tuple(self._indices[node] for node in nodes)


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
