"""Tracing of layers to the graph of their operators, by their own forward.

Torch runs the layers' forward once on symbols (torch.fx) and notes each operator that they reach.
Modules that combine operators (rows, residual sums, cells) need no second description, and a fused
layer cannot do anything else than the layer alone.
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
"""An operator over tiles, a module that works value by value, `operator.add` or `torch.cat`."""
WINDOWED = (SpatialConv2d, SpatialMaxPool2d, SpatialAvgPool2d)
_OPERATORS = (*WINDOWED, TileNorm, *PIXELWISE)


def trace(
    layers: Mapping[str, nn.Module], tilings: Sequence[Tiling]
) -> tuple[OperatorGraph, tuple[Operator, ...]]:
    """Return the graph of layers in a row, and the operator of each of its steps.

    Args:
        layers: By name. The first takes as many tensors as there are tilings: one, or a tuple of
            two.
        tilings: The tiles of each.

    Raises:
        TypeError: The layers have an operator that cannot be fused.
        ValueError: An operator was made for other tiles than it gets.
    """
    row = (_Row if len(tilings) == 1 else _RowOfTwo)(layers)
    traced = _Traced(row, [tiling.partition for tiling in tilings])
    for node in _Tracer().trace(row).nodes:
        traced.take(node)
    return traced.graph, tuple(traced.operators)


class _Row(nn.Module):
    """Layers one after the other."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)

    def forward(self, data: Any) -> Any:
        for layer in self.layers.values():
            data = layer(data)
        return data


class _RowOfTwo(nn.Module):
    """Layers one after the other, from a tuple of two tensors, which torch.fx cannot trace."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.row = _Row(layers)

    def forward(self, before: Any, older: Any) -> Any:
        return self.row((before, older))


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, _OPERATORS) or super().is_leaf_module(module, name)


@dataclass(slots=True)
class _Traced:
    """A graph while it is traced.

    Attributes:
        row: The layers.
        inputs: The tiles of each of their inputs.
        operators: The operators of the steps.
    """

    row: nn.Module
    inputs: Sequence[Partition]
    operators: list[Operator] = field(default_factory=list)
    _steps: list[OperatorStep] = field(default_factory=list)
    _values: list[Partition] = field(default_factory=list)
    _numbers: dict[fx.Node, int] = field(default_factory=dict)
    _results: tuple[int, ...] = ()

    @property
    def graph(self) -> OperatorGraph:
        """The graph, when all nodes have been taken."""
        return OperatorGraph(tuple(self.inputs), tuple(self._steps), self._results)

    def take(self, node: fx.Node) -> None:
        """Add the operator of a node of torch's graph."""
        if node.op == "placeholder":
            self._add(node, self.inputs[len(self._values)])
        elif node.op == "call_module":
            module = self.row.get_submodule(str(node.target))
            self._take_module(node, module)
        elif node.op == "output":
            (given,) = node.args
            nodes = given if isinstance(given, tuple) else (given,)
            self._results = self._numbers_of(nodes)
        elif node.target is operator.add:
            self._step(node, operator.add, node.args)
        elif node.target is torch.cat and node.kwargs == {"dim": 1}:
            (given,) = node.args
            self._step(node, torch.cat, given)
        else:
            raise TypeError(f"{node.format_node()} cannot be fused")

    def _take_module(self, node: fx.Node, module: nn.Module) -> None:
        (number,) = self._numbers_of(node.args)
        read = self._values[number]
        if isinstance(module, nn.Identity):
            self._numbers[node] = number
        elif isinstance(module, WINDOWED):
            _check(node, module.tiled.tiling.partition, read)
            self._step(node, module, node.args, module.output.partition, window=module.window)
        elif isinstance(module, TileNorm):
            _check(node, module.tiling.partition, read)
            self._step(node, module, node.args, statistics=True)
        elif isinstance(module, PIXELWISE):
            self._step(node, module, node.args)
        else:
            raise TypeError(f"{node.target} ({type(module).__name__}) cannot be fused")

    def _step(
        self,
        node: fx.Node,
        made_by: Operator,
        read: Any,
        made: Partition | None = None,
        **kind: Any,
    ) -> None:
        numbers = self._numbers_of(read)
        made = made or self._values[numbers[0]]
        self.operators.append(made_by)
        self._steps.append(OperatorStep(numbers, made, **kind))
        self._add(node, made)

    def _add(self, node: fx.Node, partition: Partition) -> None:
        self._numbers[node] = len(self._values)
        self._values.append(partition)

    def _numbers_of(self, nodes: Any) -> tuple[int, ...]:
        return tuple(self._numbers[node] for node in nodes)


def _check(node: fx.Node, made_for: Partition, read: Partition) -> None:
    # Not who else shares the image: statistics may be over more ranks than its tiles'.
    if (made_for.grid, made_for.height, made_for.width) != (read.grid, read.height, read.width):
        raise ValueError(
            f"{node.target} was made for other tiles than it gets; give it the output of what is "
            "before it as its tiling"
        )
