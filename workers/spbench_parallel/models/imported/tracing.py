"""Tracing of a network: its operators in order, with the shapes of their values.

Shapes come from two runs without memory with different batch sizes. They show which tensors have a
row per image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.copies import copy_without_memory, quiet_fake_tensors
from spbench_parallel.models.imported.forward.graph import trace_graph
from spbench_parallel.models.imported.forward.leaf_modules import find_stochastic_op
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.hooks import check_hooks
from spbench_parallel.models.imported.messages import (
    ImageSizeError,
    called_module,
    find_size_remedy,
    locate,
    make_size_error,
)
from spbench_parallel.models.imported.state import check_state
from spbench_parallel.models.imported.stochastic import StochasticOp

_BATCH_SIZES = 3, 5
"""Batch sizes of the two runs that find shapes; batch normalisation needs more than one image."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a network.

    Attributes:
        node: Its node in the graph.
        shape: The shape of its output for one image. None if the output is not a floating-point
            tensor with a row per image.
        multiply_adds: Multiply-adds for one image.
        is_number: Whether it returns a size or another number, not a tensor.
        size_without_batch: For the size of a tensor, all sides except the first.
    """

    node: fx.Node
    shape: tuple[int, ...] | None
    multiply_adds: int
    is_number: bool = False
    size_without_batch: Any = None


@dataclass(frozen=True, eq=False)
class TracedNetwork:
    """A traced network.

    Attributes:
        name: Its ``module:callable``.
        module: The loaded module, with its weights.
        graph: Its operators and their arguments.
        image: The shape of an image.
        operators: The operators that compute something, in order.
        stochastic: The operators that draw random numbers, by node.
    """

    name: str
    module: nn.Module
    graph: fx.Graph
    image: MapShape
    operators: tuple[Operator, ...]
    stochastic: Mapping[fx.Node, StochasticOp]

    @cached_property
    def positions(self) -> dict[fx.Node, int]:
        """The index of each operator, by its node; the image has -1."""
        positions = {node: -1 for node in self.graph.nodes if node.op == "placeholder"}
        return positions | {operator.node: index for index, operator in enumerate(self.operators)}

    @cached_property
    def shapes(self) -> dict[fx.Node, tuple[int, ...]]:
        """The shape for one image of each value that has a row per image."""
        shapes = {
            operator.node: operator.shape
            for operator in self.operators
            if operator.shape is not None
        }
        images = (node for node in self.graph.nodes if node.op == "placeholder")
        return dict.fromkeys(images, self.image.shape) | shapes

    def get_module(self, node: fx.Node) -> nn.Module | None:
        """Return the module that a node calls; None for another node."""
        return self.module.get_submodule(str(node.target)) if node.op == "call_module" else None

    def is_constant(self, node: fx.Node) -> bool:
        """Return whether a node is a tensor that is not a parameter or buffer."""
        value = get_attribute(self.module, str(node.target))
        if not isinstance(value, torch.Tensor) or isinstance(value, nn.Parameter):
            return False
        folder, _, name = str(node.target).rpartition(".")
        return name not in dict(self.module.get_submodule(folder).named_buffers(recurse=False))


def trace_network(
    name: str, module: nn.Module, image: MapShape, *, advises: bool = True
) -> TracedNetwork:
    """Trace a network.

    Args:
        name: Its name in errors.
        module: The network.
        image: The shape of an image.
        advises: Whether an error names an image size that the network supports.

    Raises:
        CannotRunError: It cannot be traced or does not support such images, it draws random numbers
            that ranks cannot draw alike, or it has state or hooks that ranks cannot have.
    """
    check_state(name, module)
    check_hooks(name, module)
    supports = partial(_supports_image, name, module)
    try:
        module, graph, drawing_nodes = trace_graph(name, module, image)
        results_by_run = [
            _run_without_memory(name, module, graph, image, image_count)
            for image_count in _BATCH_SIZES
        ]
    except ImageSizeError as error:
        if not advises:
            raise
        raise CannotRunError(f"{error}; {find_size_remedy(image, supports)}") from error.__cause__
    _fold_constant_numbers(graph, results_by_run)
    operators: list[Operator] = []
    stochastic: dict[fx.Node, StochasticOp] = {}
    for node in graph.nodes:
        if (
            stochastic_op := find_stochastic_op(name, module, node, len(stochastic), drawing_nodes)
        ) is not None:
            stochastic[node] = stochastic_op
        if node.op in ("call_module", "call_function", "call_method"):
            first_result, second_result = (run.get(node) for run in results_by_run)
            multiply_adds = (
                0 if first_result is None else first_result.multiply_adds // _BATCH_SIZES[0]
            )
            is_number, size_without_batch = _find_number(first_result, second_result)
            shape = _find_image_shape(first_result, second_result)
            if node in stochastic and shape is None:
                raise CannotRunError(
                    f"network {name}: {locate(node)} drops what is of no one image"
                )
            operators.append(Operator(node, shape, multiply_adds, is_number, size_without_batch))
    return TracedNetwork(name, module, graph, image, tuple(operators), stochastic)


def list_targets(network: TracedNetwork) -> list[tuple[str, str]]:
    """Return operation and target of each node.

    They may depend on the image size.
    """
    return [(node.op, str(node.target)) for node in network.graph.nodes]


@dataclass(frozen=True, slots=True)
class _NodeResult:
    """The result of an operator in a run, with its multiply-adds."""

    value: Any
    multiply_adds: int


class _ShapeInterpreter(fx.Interpreter):
    """A run without memory that records the result of each operator."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.results: dict[fx.Node, _NodeResult] = {}
        self.current: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        """Run an operator, and record its result."""
        self.current = n
        with FlopCounterMode(display=False) as counter:
            value = super().run_node(n)
        self.results[n] = _NodeResult(value, counter.get_total_flops() // 2)
        return value


def _supports_image(name: str, module: nn.Module, image: MapShape) -> bool:
    """Return whether a network supports images of a shape."""
    try:
        trace_network(name, module, image, advises=False)
    except CannotRunError:
        return False
    return True


def _run_without_memory(
    name: str, module: nn.Module, graph: fx.Graph, image: MapShape, image_count: int
) -> dict[fx.Node, _NodeResult]:
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    interpreter = _ShapeInterpreter(copy_without_memory(name, module, fake_mode).eval(), graph)
    try:
        with fake_mode, torch.no_grad(), quiet_fake_tensors():
            interpreter.run(torch.empty(image_count, *image.shape))
    except Exception as error:  # an operator may raise any error for such shapes
        location = "" if interpreter.current is None else f"{locate(interpreter.current)}: "
        raise make_size_error(
            name, location, error, image, called_module(module, interpreter.current)
        ) from error
    return interpreter.results


def _find_image_shape(
    first_result: _NodeResult | None, second_result: _NodeResult | None
) -> tuple[int, ...] | None:
    """Return the shape for one image if a value has a row per image; or None."""
    if first_result is None or second_result is None:
        return None
    tensor = first_result.value
    other_tensor = second_result.value
    if not (isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.dim() > 0):
        return None
    sides_match = tensor.shape[1:] == other_tensor.shape[1:]
    rows_match = (tensor.shape[0], other_tensor.shape[0]) == _BATCH_SIZES
    return tuple(tensor.shape[1:]) if sides_match and rows_match else None


def _find_number(
    first_result: _NodeResult | None, second_result: _NodeResult | None
) -> tuple[bool, Any]:
    """Return whether an operator returns a number, and its value if it is constant."""
    if first_result is None or second_result is None:
        return False, None
    output = first_result.value
    other_output = second_result.value
    if isinstance(output, torch.Size):
        return True, tuple(output[1:]) if output[1:] == other_output[1:] else None
    return _is_number(output), None


def _fold_constant_numbers(
    graph: fx.Graph, results_by_run: Sequence[Mapping[fx.Node, _NodeResult]]
) -> None:
    """Replace numbers and sizes that do not depend on images by constants.

    Then they do not cross cuts, and over tiles they are the sizes of whole maps.
    """
    for node in reversed(graph.nodes):
        if not node.op.startswith("call"):
            continue
        first, second = (results[node].value for results in results_by_run)
        if not _is_number(first) or (first != second and node.users):
            continue
        value = tuple(first) if isinstance(first, torch.Size) else first
        for user in list(node.users):
            user.args = _replace_node(user.args, node, value)
            user.kwargs = _replace_node(user.kwargs, node, value)
        graph.erase_node(node)


def _replace_node(arguments: Any, node: fx.Node, value: Any) -> Any:
    """Return arguments with a node replaced by a value."""
    return fx.map_arg(arguments, lambda argument: value if argument is node else argument)


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(isinstance(element, int | float) for element in value)
    return isinstance(value, int | float)
