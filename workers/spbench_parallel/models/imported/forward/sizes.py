"""A tracer that knows the sizes of tensors, and traces hooks like calls.

Sizes are those of whole images: `tracing` replaces operators that read sizes by numbers. The number
of images remains a symbol.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from spbench_core.models.parts import MapShape
from spbench_parallel.models.imported.forward.copies import quiet_fake_tensors
from spbench_parallel.models.imported.hooks import is_hooked, replace_forward

_BATCH_SIZES = 3, 5
"""Batch sizes of two runs without memory: values that differ depend on the batch size."""


class SizedProxy(fx.Proxy):
    """A symbol for a tensor; its sizes are numbers, except batch sizes."""

    @property
    def shape(self) -> Any:
        sizes = self._sizes()
        return super().__getattr__("shape") if sizes is None else sizes

    @property
    def ndim(self) -> Any:
        sizes = self._sizes()
        return super().__getattr__("ndim") if sizes is None else len(sizes)

    def dim(self) -> Any:
        sizes = self._sizes()
        return super().__getattr__("dim")() if sizes is None else len(sizes)

    def size(self, dim: Any = None) -> Any:
        sizes = self._sizes()
        if sizes is None or not isinstance(dim, int | None):
            return super().__getattr__("size")(*(() if dim is None else (dim,)))
        return sizes if dim is None else sizes[dim]

    def _sizes(self) -> tuple[Any, ...] | None:
        assert isinstance(self.tracer, SizedTracer), "no other makes them"
        sizes = self.tracer.find_sizes(self.node)
        if sizes is None:
            return None
        # A plain tuple, because torch.fx looks for symbols only in plain tuples.
        return tuple(
            self._read_batch_size(axis) if size is None else size for axis, size in enumerate(sizes)
        )

    def _read_batch_size(self, axis: int) -> Any:
        return self.tracer.create_proxy(
            "call_method", "size", (self, axis), {}, proxy_factory_fn=self._make_count
        )

    def _make_count(self, node: fx.Node) -> fx.Proxy:
        return CountProxy(node, self.tracer)


class CountProxy(SizedProxy):
    """A symbol for a size that depends on the number of images."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        assert isinstance(self.tracer, SizedTracer), "no other makes them"
        if isinstance(other, CountProxy) and self.tracer.is_same(self.node, other.node):
            return True
        return self.tracer.create_proxy("call_function", operator.eq, (self, other), {})

    def __ne__(self, other: object) -> Any:
        is_same = self == other
        if is_same is True:
            return False
        return self.tracer.create_proxy("call_function", operator.ne, (self, other), {})


class SizedTracer(fx.Tracer):
    """The tracer.

    Args:
        image: The shape of an image.

    Attributes:
        calling: The paths of the modules that are being called; after an error, those at the error.
        measures: Whether it is running traced nodes to find sizes.
    """

    def __init__(self, image: MapShape) -> None:
        super().__init__()
        self.calling: list[str] = []
        self._image = image
        self._values_by_run: tuple[dict[fx.Node, Any], ...] = tuple({} for _ in _BATCH_SIZES)
        self._last_measured: fx.Node | None = None
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.measures = False

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if self.measures:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if self.measures:
            return forward(*args, **kwargs)
        path = self.path_of_module(m)
        self.calling.append(path)
        if is_hooked(m) and self.is_leaf_module(m, path):

            def call_alone(*args: Any, **kwargs: Any) -> Any:
                return self.create_proxy("call_module", path, args, kwargs)

            with replace_forward(m, call_alone):
                result = forward(*args, **kwargs)
        else:
            result = super().call_module(m, forward, args, kwargs)
        self.calling.pop()
        return result

    def is_same(self, node: fx.Node, other_node: fx.Node) -> bool:
        """Return whether two numbers are equal for any number of images."""
        self._measure()
        return all(
            isinstance(value_by_node[node], int)
            and value_by_node[node] == value_by_node[other_node]
            for value_by_node in self._values_by_run
        )

    def find_sizes(self, node: fx.Node) -> tuple[int | None, ...] | None:
        """Return the sizes of a tensor, None for those that depend on the batch.

        Returns:
            None if the node is not a tensor, or its sizes are unknown.
        """
        self._measure()
        first, second = (value_by_node.get(node) for value_by_node in self._values_by_run)
        if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
            return None
        if first.dim() != second.dim():
            return None
        pairs = zip(first.shape, second.shape, strict=True)
        return tuple(int(size) if size == other_size else None for size, other_size in pairs)

    def _measure(self) -> None:
        """Run the nodes that were traced since the last call, without memory."""
        node = (
            next(iter(self.graph.nodes))
            if self._last_measured is None
            else self._last_measured.next
        )
        self.measures = True
        try:
            with self.fake_mode, torch.no_grad(), quiet_fake_tensors():
                while node.op != "root":
                    for value_by_node, image_count in zip(
                        self._values_by_run, _BATCH_SIZES, strict=True
                    ):
                        value_by_node[node] = self._compute(node, value_by_node, image_count)
                    self._last_measured, node = node, node.next
        finally:
            self.measures = False

    def _compute(self, node: fx.Node, value_by_node: dict[fx.Node, Any], image_count: int) -> Any:
        """Return the value of a node, or `_UNKNOWN`."""
        if node.op == "placeholder":
            is_first = node is next(iter(self.graph.nodes))
            return torch.empty(image_count, *self._image.shape) if is_first else _UNKNOWN
        if any(value_by_node[source] is _UNKNOWN for source in node.all_input_nodes):
            return _UNKNOWN
        args: Any = fx.map_arg(node.args, value_by_node.__getitem__)
        kwargs: Any = fx.map_arg(node.kwargs, value_by_node.__getitem__)
        try:
            root = self.measured_root(str(node.target))
            if node.op == "get_attr":
                return get_attribute(root, str(node.target))
            if node.op == "call_module":
                return _call_in_evaluation(root.get_submodule(str(node.target)), args, kwargs)
            if node.op == "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            assert callable(node.target), "a target that is no name is a function"
            return node.target(*args, **kwargs)
        except Exception:  # the error is reported when the whole network runs
            return _UNKNOWN

    def measured_root(self, path: str) -> nn.Module:
        """Return the network that provides a module or tensor for measuring."""
        return self.root

    def compute_value(self, node: fx.Node) -> Any:
        """Return a value without memory for a node; None if it is unknown."""
        self._measure()
        value = self._values_by_run[0].get(node)
        return None if value is _UNKNOWN else value


_UNKNOWN = object()


def _call_in_evaluation(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Call a module in evaluation mode, which changes no statistics."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        return module(*args, **kwargs)
    finally:
        for part, training in modes:
            part.training = training


def get_attribute(module: nn.Module, path: str) -> Any:
    """Return the parameter, buffer, module or constant at a path of a module."""
    attribute: Any = module
    for name in path.split("."):
        attribute = getattr(attribute, name)
    return attribute


def get_defaults(module: nn.Module) -> dict[str, Any]:
    """Return the arguments of a forward pass with a default value, by name.

    Only None, bools and numbers count.
    """
    _, *other_parameters = inspect.signature(module.forward).parameters.values() or [None]
    return {
        parameter.name: parameter.default
        for parameter in other_parameters
        if parameter is not None
        and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        and (parameter.default is None or isinstance(parameter.default, bool | int | float))
    }


def erase_defaults(graph: fx.Graph) -> None:
    """Erase the placeholders of arguments with a default, and their comparisons."""
    _, *other_placeholders = [node for node in graph.nodes if node.op == "placeholder"] or [None]
    for node in other_placeholders:
        uses = [node]
        for use in uses:
            uses += use.users
        if all(use is node or _is_comparison(use) for use in uses):
            for use in reversed(uses):
                graph.erase_node(use)


def _is_comparison(node: fx.Node) -> bool:
    return node.target in (torch._assert, operator.eq, fx._symbolic_trace._assert_is_none)
