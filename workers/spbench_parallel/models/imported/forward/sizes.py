"""A tracer that knows the sizes of tensors, and traces hooks like the calls that they are.

Sizes are those of whole images: `tracing` replaces operators that ask for sizes by numbers. The
number of images remains a symbol.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from spbench_core.models.parts import Map
from spbench_parallel.models.imported.forward.copies import quiet_fake_tensors
from spbench_parallel.models.imported.hooks import is_hooked, replace_forward

_IMAGES = 3, 5
"""Images of two runs without memory: what differs depends on their number."""


class SizedProxy(fx.Proxy):
    """A symbol for a tensor whose sizes are numbers, but for those that depend on the batch."""

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
        known = self.tracer.sizes_of(self.node)
        if known is None:
            return None
        # A plain tuple: torch.fx looks for symbols in no other.
        return tuple(self._count(axis) if size is None else size for axis, size in enumerate(known))

    def _count(self, axis: int) -> Any:
        return self.tracer.create_proxy(
            "call_method", "size", (self, axis), {}, proxy_factory_fn=self._as_count
        )

    def _as_count(self, node: fx.Node) -> fx.Proxy:
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
        calling: The paths of the modules that are being called; of those at the first error, after
            one.
        measures: Whether it runs what was traced, to know sizes.
    """

    def __init__(self, image: Map) -> None:
        super().__init__()
        self.calling: list[str] = []
        self._image = image
        self._runs: tuple[dict[fx.Node, Any], ...] = tuple({} for _ in _IMAGES)
        self._last: fx.Node | None = None
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

    def is_same(self, one: fx.Node, other: fx.Node) -> bool:
        """Return whether two numbers are equal for any number of images."""
        self._measure()
        return all(isinstance(run[one], int) and run[one] == run[other] for run in self._runs)

    def sizes_of(self, node: fx.Node) -> tuple[int | None, ...] | None:
        """Return the sizes of a tensor, None for those that depend on the number of images.

        Returns:
            None if it is no tensor, or its sizes are not known.
        """
        self._measure()
        first, second = (run.get(node) for run in self._runs)
        if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
            return None
        if first.dim() != second.dim():
            return None
        pairs = zip(first.shape, second.shape, strict=True)
        return tuple(int(size) if size == other else None for size, other in pairs)

    def _measure(self) -> None:
        """Run the nodes that were traced since the last time, without memory."""
        node = next(iter(self.graph.nodes)) if self._last is None else self._last.next
        self.measures = True
        try:
            with self.fake_mode, torch.no_grad(), quiet_fake_tensors():
                while node.op != "root":
                    for run, images in zip(self._runs, _IMAGES, strict=True):
                        run[node] = self._value(node, run, images)
                    self._last, node = node, node.next
        finally:
            self.measures = False

    def _value(self, node: fx.Node, run: dict[fx.Node, Any], images: int) -> Any:
        """Return the value of a node, or `_UNKNOWN`."""
        if node.op == "placeholder":
            is_first = node is next(iter(self.graph.nodes))
            return torch.empty(images, *self._image.shape) if is_first else _UNKNOWN
        if any(run[source] is _UNKNOWN for source in node.all_input_nodes):
            return _UNKNOWN
        args: Any = fx.map_arg(node.args, run.__getitem__)
        kwargs: Any = fx.map_arg(node.kwargs, run.__getitem__)
        try:
            root = self.measured_root(str(node.target))
            if node.op == "get_attr":
                return get_attribute(root, str(node.target))
            if node.op == "call_module":
                return _call_evaluated(root.get_submodule(str(node.target)), args, kwargs)
            if node.op == "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            assert callable(node.target), "there is no other kind"
            return node.target(*args, **kwargs)
        except Exception:  # it is reported when the whole network runs
            return _UNKNOWN

    def measured_root(self, path: str) -> nn.Module:
        """Return the network of which a module or tensor at a path is used to measure sizes."""
        return self.root

    def value_of(self, node: fx.Node) -> Any:
        """Return a value without memory for a node; None if it cannot be computed."""
        self._measure()
        value = self._runs[0].get(node)
        return None if value is _UNKNOWN else value


_UNKNOWN = object()


def _call_evaluated(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Return what a module gives in evaluation mode, in which it changes no statistics."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        return module(*args, **kwargs)
    finally:
        for part, training in modes:
            part.training = training


def get_attribute(module: nn.Module, path: str) -> Any:
    """Return the attribute at a path of a module: a parameter, a buffer, a module, a constant."""
    value: Any = module
    for word in path.split("."):
        value = getattr(value, word)
    return value


def get_defaults(module: nn.Module) -> dict[str, Any]:
    """Return the arguments of a forward pass that have a default, by name, but for tensors."""
    _, *others = inspect.signature(module.forward).parameters.values() or [None]
    return {
        each.name: each.default
        for each in others
        if each is not None
        and each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        and (each.default is None or isinstance(each.default, bool | int | float))
    }


def erase_defaults(graph: fx.Graph) -> None:
    """Erase the placeholders of arguments with a default, and their comparisons with it."""
    _, *others = [node for node in graph.nodes if node.op == "placeholder"] or [None]
    for node in others:
        checks = [node]
        for check in checks:
            checks += check.users
        if all(check is node or _compares(check) for check in checks):
            for check in reversed(checks):
                graph.erase_node(check)


def _compares(node: fx.Node) -> bool:
    return node.target in (torch._assert, operator.eq, fx._symbolic_trace._assert_is_none)
