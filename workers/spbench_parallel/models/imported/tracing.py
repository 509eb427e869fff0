"""Tracing of a network: its operators in order, with the shapes of what each reads and gives.

Shapes come from two runs without memory, of two batch sizes, which tell what has a row for each
image.
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

from spbench_core.models.parts import Map
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.copies import copy_without_memory, quiet_fake_tensors
from spbench_parallel.models.imported.forward.graph import find_stochastic_op, trace_graph
from spbench_parallel.models.imported.forward.sizes import get_attribute
from spbench_parallel.models.imported.hooks import check_hooks
from spbench_parallel.models.imported.messages import (
    ImageSizeError,
    called_module,
    locate,
    size_error,
    size_remedy,
)
from spbench_parallel.models.imported.state import check_state
from spbench_parallel.models.imported.stochastic import StochasticOp

_IMAGES = 3, 5
"""Images of the two runs that tell shapes: more than one, as batch normalisation asks for."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a network.

    Attributes:
        node: Its node in the graph.
        shape: The shape of what it gives for one image; None where that is no tensor of floating
            point with a row for each image.
        multiply_adds: For one image.
        number: Whether it gives no tensor, but a size or another number.
        value: Of a size of a tensor, all sides but the first.
    """

    node: fx.Node
    shape: tuple[int, ...] | None
    multiply_adds: int
    is_number: bool = False
    value: Any = None


@dataclass(frozen=True, eq=False)
class TracedNetwork:
    """A traced network.

    Attributes:
        name: Its ``module:callable``.
        module: It as it was loaded, with its weights.
        graph: Its operators and their arguments.
        image: The shape of an image.
        operators: The operators that compute something, in their order.
        chance: What those drop that draw random numbers.
    """

    name: str
    module: nn.Module
    graph: fx.Graph
    image: Map
    operators: tuple[Operator, ...]
    stochastic: Mapping[fx.Node, StochasticOp]

    @cached_property
    def positions(self) -> dict[fx.Node, int]:
        """The index of each operator, by its node; -1 of the image."""
        places = {node: -1 for node in self.graph.nodes if node.op == "placeholder"}
        return places | {each.node: at for at, each in enumerate(self.operators)}

    @cached_property
    def shapes(self) -> dict[fx.Node, tuple[int, ...]]:
        """The shape for one image of what has a row for each image."""
        shapes = {each.node: each.shape for each in self.operators if each.shape is not None}
        images = (node for node in self.graph.nodes if node.op == "placeholder")
        return dict.fromkeys(images, self.image.shape) | shapes

    def get_module(self, node: fx.Node) -> nn.Module | None:
        """Return the module that a node calls, if it does."""
        return self.module.get_submodule(str(node.target)) if node.op == "call_module" else None

    def is_constant(self, node: fx.Node) -> bool:
        """Return whether a node is a tensor that no parameter or buffer is, as one of indices."""
        found = get_attribute(self.module, str(node.target))
        if not isinstance(found, torch.Tensor) or isinstance(found, nn.Parameter):
            return False
        folder, _, name = str(node.target).rpartition(".")
        return name not in dict(self.module.get_submodule(folder).named_buffers(recurse=False))


def trace_network(
    name: str, module: nn.Module, image: Map, *, advises: bool = True
) -> TracedNetwork:
    """Trace a network.

    Args:
        name: Its name in errors.
        module: The network.
        image: The shape of an image.
        advises: Whether an error names a size of images that the network takes.

    Raises:
        CannotRunError: It cannot be traced, not for such images, it draws random numbers that
            ranks cannot draw alike, or it has state or hooks that ranks cannot have.
    """
    check_state(name, module)
    check_hooks(name, module)
    takes = partial(_takes, name, module)
    try:
        module, graph, draws = trace_graph(name, module, image)
        shapes = [_shapes(name, module, graph, image, count) for count in _IMAGES]
    except ImageSizeError as error:
        if not advises:
            raise
        raise CannotRunError(f"{error}; {size_remedy(image, takes)}") from error.__cause__
    _fold_numbers(graph, shapes)
    operators: list[Operator] = []
    chances: dict[fx.Node, StochasticOp] = {}
    for node in graph.nodes:
        if (chance := find_stochastic_op(name, module, node, len(chances), draws)) is not None:
            chances[node] = chance
        if node.op in ("call_module", "call_function", "call_method"):
            first, second = (found.get(node) for found in shapes)
            multiply_adds = 0 if first is None else first.multiply_adds // _IMAGES[0]
            number, value = _number(first, second)
            shape = _of_one_image(first, second)
            if node in chances and shape is None:
                raise CannotRunError(
                    f"network {name}: {locate(node)} drops what is of no one image"
                )
            operators.append(Operator(node, shape, multiply_adds, number, value))
    return TracedNetwork(name, module, graph, image, tuple(operators), chances)


def list_targets(network: TracedNetwork) -> list[tuple[str, str]]:
    """Return what each node of a network calls, which may depend on the size of images."""
    return [(node.op, str(node.target)) for node in network.graph.nodes]


@dataclass(frozen=True, slots=True)
class _Made:
    """The result of an operator in a run, and the multiply-adds that it took."""

    value: Any
    multiply_adds: int


class _Shapes(fx.Interpreter):
    """A run without memory that notes what each operator gives."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.made: dict[fx.Node, _Made] = {}
        self.at: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        """Run an operator, and note it."""
        self.at = n
        with FlopCounterMode(display=False) as counted:
            value = super().run_node(n)
        self.made[n] = _Made(value, counted.get_total_flops() // 2)
        return value


def _takes(name: str, module: nn.Module, image: Map) -> bool:
    """Return whether a network takes images of a shape."""
    try:
        trace_network(name, module, image, advises=False)
    except CannotRunError:
        return False
    return True


def _shapes(
    name: str, module: nn.Module, graph: fx.Graph, image: Map, images: int
) -> dict[fx.Node, _Made]:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    run = _Shapes(copy_without_memory(name, module, mode).eval(), graph)
    try:
        with mode, torch.no_grad(), quiet_fake_tensors():
            run.run(torch.empty(images, *image.shape))
    except Exception as error:  # whatever an operator says of such shapes
        at = "" if run.at is None else f"{locate(run.at)}: "
        raise size_error(name, at, error, image, called_module(module, run.at)) from error
    return run.made


def _of_one_image(first: _Made | None, second: _Made | None) -> tuple[int, ...] | None:
    """Return the shape for one image, of what has a row for each; else None."""
    if first is None or second is None:
        return None
    one = first.value
    other = second.value
    if not (isinstance(one, torch.Tensor) and one.is_floating_point() and one.dim() > 0):
        return None
    alike = one.shape[1:] == other.shape[1:]
    rows = (one.shape[0], other.shape[0]) == _IMAGES
    return tuple(one.shape[1:]) if alike and rows else None


def _number(first: _Made | None, second: _Made | None) -> tuple[bool, Any]:
    """Return whether an operator gives a size or a number, and it, where it is known before."""
    if first is None or second is None:
        return False, None
    one = first.value
    other = second.value
    if isinstance(one, torch.Size):
        return True, tuple(one[1:]) if one[1:] == other[1:] else None
    return _is_number(one), None


def _fold_numbers(graph: fx.Graph, runs: Sequence[Mapping[fx.Node, _Made]]) -> None:
    """Put numbers and sizes that do not depend on images in the place of what asks for them.

    So they cross no cuts, and are of whole maps over tiles too.
    """
    for node in reversed(graph.nodes):
        if not node.op.startswith("call"):
            continue
        first, second = (found[node].value for found in runs)
        if not _is_number(first) or (first != second and node.users):
            continue
        value = tuple(first) if isinstance(first, torch.Size) else first
        for user in list(node.users):
            user.args = _replaced(user.args, node, value)
            user.kwargs = _replaced(user.kwargs, node, value)
        graph.erase_node(node)


def _replaced(arguments: Any, node: fx.Node, value: Any) -> Any:
    """Return arguments with a value in the place of a node."""
    return fx.map_arg(arguments, lambda one: value if one is node else one)


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(isinstance(one, int | float) for one in value)
    return isinstance(value, int | float)
