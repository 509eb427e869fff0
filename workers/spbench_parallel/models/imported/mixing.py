"""Detection of operators that mix the images of a batch, by comparing numbers.

Ranks that share a batch, and micro-batches, each compute some of its images. An operator that reads
other images then gives different results. Batch normalisation also mixes images, and is exempt.

The network runs once on a few random images, and once on each of two parts of them. Each operator
of a part reads the outputs of the whole batch for its images. So only an operator that itself mixes
images differs. Weights are perturbed, so that special values do not hide a difference.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.hooks import is_hooked
from spbench_parallel.models.imported.pointwise import get_argument, works_by_value
from spbench_parallel.models.imported.tracing import TracedNetwork, list_targets, trace_network

_PARTS = (0, 2), (2, 5)
"""The images of both parts; batch normalisation of vectors needs at least two."""
_MIN_SIDE = 16
_TOLERANCE = 1e-4
"""The largest difference that rounding in fp32 explains, relative to the largest value."""
_SEPARATING_MODULES = (
    *(nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.GroupNorm, nn.LayerNorm, nn.PReLU),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.Upsample),
    *(nn.PixelShuffle, nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d),
    nn.modules.batchnorm._BatchNorm,
)
"""Modules that compute each image separately, or are batch normalisation."""
_SEPARATING_FUNCTIONS: frozenset[Callable[..., Any]] = frozenset(
    (
        *(functional.interpolate, functional.max_pool2d, torch.max_pool2d),
        *(functional.avg_pool2d, functional.adaptive_avg_pool2d),
    )
)
Values = list[Any]
"""A value of the whole batch, and the values of both parts."""


@dataclass(frozen=True, slots=True)
class MixingOperator:
    """An operator that mixes the images of a batch.

    Attributes:
        node: The operator.
        normalises: Whether it is torch's functional batch normalisation.
    """

    node: fx.Node
    normalises: bool


def find_mixing_operators(network: TracedNetwork, *, training: bool = True) -> list[MixingOperator]:
    """Return the operators of a network that mix the images of a batch, in order.

    Args:
        network: The network.
        training: Whether it is in training mode.
    """
    if all(_keeps_images_separate(network, operator.node) for operator in network.operators):
        return []
    small_network = _shrink_network(network)
    node_by_small_node = dict(zip(small_network.graph.nodes, network.graph.nodes, strict=True))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)
        mixing_nodes = list(_BatchComparison(small_network, training=training).find_mixing())
    return [
        MixingOperator(node_by_small_node[node], _normalises(node))
        for node in dict.fromkeys(mixing_nodes)
    ]


def _normalises(node: fx.Node) -> bool:
    return node.target in (functional.batch_norm, torch.batch_norm)


def _shrink_network(network: TracedNetwork) -> TracedNetwork:
    """Return the network for the smallest images, by halving, with the same operators."""
    channels, *sides = network.image.shape
    halved_sides = [sides]
    while min(halved_sides[-1]) >= 2 * _MIN_SIDE and not any(side % 2 for side in halved_sides[-1]):
        halved_sides.append([side // 2 for side in halved_sides[-1]])
    for height, width in reversed(halved_sides[1:]):
        try:
            small_network = _retrace(network, MapShape(channels, height, width))
        except CannotRunError:
            continue
        if list_targets(small_network) == list_targets(network):
            return small_network
    return network


def _retrace(network: TracedNetwork, image: MapShape) -> TracedNetwork:
    return trace_network(network.name, network.module, image, advises=False)


class _BatchComparison:
    """Runs on the whole batch and its parts, operator by operator."""

    def __init__(self, network: TracedNetwork, *, training: bool) -> None:
        self._network = network
        self._module = _perturb(network.module).train(training)
        self._values_by_node: dict[fx.Node, Values] = {}
        self._unread_counts = {node: len(node.users) for node in network.graph.nodes}

    def find_mixing(self) -> Iterator[fx.Node]:
        runner = fx.Interpreter(self._module, graph=self._network.graph)
        for node in self._network.graph.nodes:
            if node.op == "output":
                return
            try:
                values = self._compute(runner, node)
            except _UnknownError:
                return
            except Exception:  # it does not support a part's batch size
                yield node
                return
            if node in self._network.shapes and not _is_exempt(self._network, node):
                if not _is_same(*values):
                    yield self._find_origin(node)
                values = _split_batch(values[0])
            self._values_by_node[node] = values
            for source in node.all_input_nodes:
                self._unread_counts[source] -= 1
                if not self._unread_counts[source] and source in self._network.shapes:
                    self._values_by_node[source] = []

    def _compute(self, runner: fx.Interpreter, node: fx.Node) -> Values:
        if node.op == "placeholder":
            dtype = next(
                (parameter.dtype for parameter in self._module.parameters()), torch.float32
            )
            images = torch.randn(_PARTS[-1][1], *self._network.image.shape, dtype=dtype)
            return _split_batch(images)
        if node in self._network.stochastic:
            return self._values_by_node[node.all_input_nodes[0]]
        values: Values = []
        exempt = _is_exempt(self._network, node)
        for value_index in range(1 if exempt else 1 + len(_PARTS)):
            try:
                values.append(self._run_node(runner, node, value_index))
            except Exception as error:
                if value_index == 0:
                    raise _UnknownError from error
                raise
        return _split_batch(values[0]) if exempt else values

    def _run_node(self, runner: fx.Interpreter, node: fx.Node, value_index: int) -> Any:
        def get_value(source: fx.Node) -> Any:
            return self._values_by_node[source][value_index]

        args: Any = fx.map_arg(node.args, get_value)
        kwargs: Any = fx.map_arg(node.kwargs, get_value)
        module = self._network.get_module(node)
        if isinstance(module, nn.SyncBatchNorm):
            return functional.batch_norm(args[0], None, None, module.weight, module.bias, True)
        return getattr(runner, node.op)(node.target, args, kwargs)

    def _find_origin(self, node: fx.Node) -> fx.Node:
        """Return the first operator before a mixing one that is not per image.

        It may have mixed the images already.
        """
        open_nodes = [node]
        reached = {node}
        while open_nodes:
            for source in open_nodes.pop().all_input_nodes:
                if source in self._network.shapes or source in reached:
                    continue
                if source.op.startswith("call") and not self._is_number(source):
                    reached.add(source)
                    open_nodes.append(source)
        return min(reached, key=self._network.positions.__getitem__)

    def _is_number(self, node: fx.Node) -> bool:
        return self._network.operators[self._network.positions[node]].is_number


class _UnknownError(Exception):
    """Error: the whole batch cannot be computed, so there is no comparison."""


def _is_exempt(network: TracedNetwork, node: fx.Node) -> bool:
    return isinstance(network.get_module(node), nn.modules.batchnorm._BatchNorm)


def _split_batch(values: torch.Tensor) -> Values:
    return [values, *(values[first:last] for first, last in _PARTS)]


def _is_same(expected: torch.Tensor, *part_values: torch.Tensor) -> bool:
    """Return whether the parts of a tensor are the rows of the whole, up to rounding."""
    joined = torch.cat(part_values)
    if joined.shape != expected.shape:
        return False
    finite_magnitudes = expected[expected.isfinite()].abs()
    atol = _TOLERANCE * float(finite_magnitudes.max()) if finite_magnitudes.numel() else 0.0
    return torch.allclose(joined, expected, rtol=0.0, atol=atol, equal_nan=True)


def _perturb(module: nn.Module) -> nn.Module:
    """Return a copy of a network with perturbed weights, without traced hooks."""
    perturbed = copy.deepcopy(module)
    for part in perturbed.modules():
        if is_hooked(part):
            part._forward_hooks.clear()
            part._forward_pre_hooks.clear()
    for parameter in perturbed.parameters():
        if parameter.is_floating_point():
            noise = torch.randn_like(parameter)
            parameter.copy_(parameter * (1 + 0.1 * noise) + 0.1 * torch.randn_like(parameter))
    return perturbed


def _keeps_images_separate(network: TracedNetwork, node: fx.Node) -> bool:
    """Return whether an operator is known not to mix images, without a run."""
    positions = network.positions
    if network.operators[positions[node]].is_number or node in network.stochastic:
        return True
    tensor_inputs = [source for source in node.all_input_nodes if source.op != "get_attr"]
    if node not in network.shapes or any(source not in network.shapes for source in tensor_inputs):
        return False
    axis_counts = {len(network.shapes[source]) for source in tensor_inputs}
    module = network.get_module(node)
    if isinstance(module, nn.Flatten):
        return module.start_dim == 1
    if isinstance(module, nn.InstanceNorm2d):
        return not module.track_running_stats
    if isinstance(module, _SEPARATING_MODULES) or works_by_value(node, module):
        return len(axis_counts) == 1
    if node.target in _SEPARATING_FUNCTIONS:
        return True
    if node.target in (torch.flatten, "flatten"):
        return bool(get_argument(node, 1, "start_dim", default=0) == 1)
    if node.target in (torch.cat, torch.mean, "mean"):
        axes = get_argument(node, 1, "dim", default=0)
        all_axes = axes if isinstance(axes, tuple | list) else (axes,)
        return len(axis_counts) == 1 and all(
            isinstance(axis, int) and axis % (1 + min(axis_counts)) for axis in all_axes
        )
    return False
