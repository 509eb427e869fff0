"""Tracer that records a forward pass as a graph, by torch.fx.

Constructs that a graph cannot represent are rejected with the user's line.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest import mock

import torch
from torch import fx, nn
from torch.autograd import Function
from torch.fx.proxy import TraceError
from torch.utils.checkpoint import CheckpointFunction

from spbench_core.models.parts import MapShape
from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.forward.copies import copy_without_memory, is_compiled
from spbench_parallel.models.imported.forward.leaf_modules import (
    MODE_DEPENDENT,
    find_stochastic_rule,
    is_torch_operator,
)
from spbench_parallel.models.imported.forward.sizes import SizedTracer, erase_defaults, get_defaults
from spbench_parallel.models.imported.forward.symbols import Symbol, writes_by_name
from spbench_parallel.models.imported.hooks import has_own_forward
from spbench_parallel.models.imported.loading import find_current_line, is_user_code

NO_GRADIENTS = "spbench_no_gradients"
"""Key of a node's ``meta``: it was recorded under torch.no_grad."""
NUMBER = "spbench_number"
"""Key of a node's ``meta``: the forward pass has read the buffer as a number."""


class GraphRecorder(SizedTracer):
    """A tracer that records the user's lines, and keeps stochastic modules whole.

    Args:
        name: The network's name in errors.
        image: The shape of an image.
        training: Whether the module is in training.
    """

    proxy_buffer_attributes = True

    def __init__(self, name: str, image: MapShape, *, training: bool) -> None:
        super().__init__(image)
        self.record_stack_traces = True
        self.refusal: CannotRunError | None = None
        self.failure: TraceError | None = None
        self.paths_read_as_numbers: set[str] = set()
        self._name = name
        self._training = training
        self._without_memory: nn.Module | None = None
        self._autocast = _autocast_state()

    def record(self, module: nn.Module) -> fx.Graph:
        """Return the graph of a module, in its present mode.

        Raises:
            CannotRunError: The forward pass does something that a graph cannot represent.
            Exception: Any error of its code with symbols.
        """
        module.train(self._training)
        for child in module.modules():
            find_stochastic_rule(child)  # call it before recording: it calls the module
        try:
            with torch.enable_grad(), self._patch_torch():
                graph = super().trace(module, get_defaults(module))
        except Exception:
            if self.refusal is not None:
                raise self.refusal from None
            raise
        caught_error = self.refusal or self.failure
        if caught_error is not None:
            raise caught_error  # the user's code has caught the error
        erase_defaults(graph)
        for node in graph.nodes:
            if node.op == "get_attr" and node.target in self.paths_read_as_numbers:
                node.meta[NUMBER] = True
        return graph

    def reject(self, reason: str) -> NoReturn:
        """Reject the network at the user's line that is running."""
        line = find_current_line()
        self.refusal = CannotRunError(f"network {self._name}: {line}{reason}")
        raise self.refusal

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Return a symbol of a node."""
        return Symbol(node, self)

    def compute_number(self, symbol: fx.Proxy) -> Any:
        """Return the number of a symbol computed only from buffers and constants.

        Raises:
            TraceError: It depends on the image, a parameter or a written tensor.
        """
        try:
            return self._compute_constant(symbol.node)
        except ValueError:
            self.failure = TraceError(
                "symbolically traced variables cannot be used as numbers or in control flow"
            )
            raise self.failure from None

    def _compute_constant(self, node: fx.Node) -> Any:
        buffers = dict(self.root.named_buffers(remove_duplicate=False))
        if node.op == "get_attr" and not isinstance(node.target, str):
            raise ValueError(node)
        if node.op == "get_attr":
            path = str(node.target)
            if path in dict(self.root.named_parameters(remove_duplicate=False)):
                raise ValueError(node)
            if any(writes_by_name(user) for user in node.users):
                raise ValueError(node)
            if path in buffers:
                self.paths_read_as_numbers.add(path)
                return buffers[path]
            return getattr(self.root, path)
        if not node.op.startswith("call_") or node.op == "call_module" or writes_by_name(node):
            raise ValueError(node)
        target: Any = node.target
        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), self._compute_constant)
        if node.op == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        return target(*args, **kwargs)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Return a symbol computed only from buffers and constants as a boolean."""
        return bool(self.compute_number(obj))

    def iter(self, obj: fx.Proxy) -> Iterator[fx.Proxy]:
        """Reject an iteration, even if the user's code catches the error."""
        try:
            return super().iter(obj)
        except TraceError as error:
            self.failure = error
            raise

    def create_arg(self, a: Any) -> Any:
        """Return an argument as a graph node; a symbol must be of this recording."""
        if issubclass(type(a), fx.Proxy):
            if a.tracer is not self:
                self.reject(
                    "the forward pass reads a tensor of an earlier call; let each call depend on "
                    "its input only"
                )
            return a.node
        return super().create_arg(a)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Any = None,
    ) -> Any:
        """Record an operator, detached under torch.no_grad."""
        options = name, type_expr, proxy_factory_fn
        proxy = super().create_proxy(kind, target, args, kwargs, *options)
        if self.measures or not kind.startswith("call"):
            return proxy
        if torch.is_inference_mode_enabled():
            self.reject("torch.inference_mode is on within the forward pass; take torch.no_grad")
        if _autocast_state() != self._autocast:
            self.reject(
                "torch.autocast is on within the forward pass; leave it out, and choose the "
                "number format by precision"
            )
        if torch.is_grad_enabled():
            return proxy
        proxy.node.meta[NO_GRADIENTS] = True
        return self._detach(proxy)

    def _detach(self, proxy: Any) -> Any:
        """Return the detached output of an operator."""
        value = self.compute_value(proxy.node)
        if isinstance(value, torch.Tensor):
            if proxy.node.target == "detach" or writes_by_name(proxy.node):
                return proxy
            with torch.enable_grad():
                detached = proxy.detach()
            detached.node.meta[NO_GRADIENTS] = True
            return detached
        if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
            if any(isinstance(element, torch.Tensor) for element in value):
                return type(value)(proxy[index] for index in range(len(value)))
            return proxy
        if value is None or isinstance(value, int | float | str | torch.dtype | torch.device):
            return proxy
        return self.reject(
            "an operator under torch.no_grad returns something else than tensors; call detach on "
            "the tensors instead"
        )

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is recorded as one operator."""
        return not has_own_forward(m) and (
            is_torch_operator(m) or find_stochastic_rule(m) is not None
        )

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Record the call of a module; reject modules that a graph cannot represent."""
        if self.measures:
            return forward(*args, **kwargs)
        path = self.path_of_module(m)
        if is_compiled(m):
            self.reject(
                f"{path} is compiled (torch.jit or torch.compile); take the module as it was before"
            )
        if self.is_leaf_module(m, path):
            self._check_mode(m, path)
        return super().call_module(m, forward, args, kwargs)

    def _check_mode(self, module: nn.Module, path: str) -> None:
        for child in module.modules():
            depends_on_mode = (
                isinstance(child, MODE_DEPENDENT) or find_stochastic_rule(child) is not None
            )
            if depends_on_mode and child.training != self._training:
                modes = ("training", "evaluation") if self._training else ("evaluation", "training")
                self.reject(
                    f"{path} ({type(child).__name__}) is in {modes[1]} while the network is in "
                    f"{modes[0]}; let it follow the network, or write what it computes as functions"
                )

    def find_type(self, symbol: fx.Proxy) -> type | None:
        """Return the type that a symbol represents; None if it is unknown."""
        value = self.compute_value(symbol.node)
        if isinstance(value, torch.Tensor):
            return nn.Parameter if isinstance(value, nn.Parameter) else torch.Tensor
        return None if value is None else type(value)

    def measured_root(self, path: str) -> nn.Module:
        """Return the recorded module for a constant, or a copy without memory."""
        if "_tensor_constant" in path:
            return self.root
        if self._without_memory is None:
            self._without_memory = copy_without_memory(self._name, self.root, self.fake_mode)
        return self._without_memory

    @contextmanager
    def _patch_torch(self) -> Iterator[None]:
        """Patch torch functions with effects that a graph would silently lose."""
        original_apply: Any = vars(Function)["apply"].__func__
        is_grad_enabled = torch.is_grad_enabled
        set_attribute = nn.Module.__setattr__
        training = self._training

        def apply_function(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if self.measures or not any(
                _is_symbol(argument) for argument in (*args, *kwargs.values())
            ):
                return original_apply(cls, *args, **kwargs)
            if cls is CheckpointFunction:
                return args[0](*args[2:])
            return self.create_proxy("call_function", _wrap_function(cls), args, kwargs)

        def ask_gradients() -> bool:
            is_user_call = is_user_code(sys._getframe(1).f_code.co_filename) and not self.measures
            return is_grad_enabled() and (training or not is_user_call)

        def set_module_attribute(module: nn.Module, name: str, value: Any) -> None:
            if self.measures or name not in module._buffers.keys() | module._parameters.keys():
                set_attribute(module, name, value)
            elif not self._record_counter(module, name, value):
                self.reject_change(self._tensor_path(module, name))

        with (
            mock.patch.object(Function, "apply", classmethod(apply_function)),
            mock.patch.object(torch, "is_grad_enabled", ask_gradients),
            mock.patch.object(nn.Module, "__setattr__", set_module_attribute),
        ):
            yield

    def reject_change(self, path: str) -> NoReturn:
        """Reject a forward pass that changes a buffer or a parameter."""
        self.reject(
            f"the forward pass changes {path}, which ranks cannot have alike; leave it out, or "
            "change it in the training script"
        )

    def _record_counter(self, module: nn.Module, name: str, value: Any) -> bool:
        """Record an assignment that adds a number to a buffer; return whether it does."""
        if not _is_symbol(value) or name in module._parameters:
            return False
        node = value.node
        path = self._tensor_path(module, name)
        source, *addends = node.args or (None,)
        if not isinstance(source, fx.Node) or (source.op, source.target) != ("get_attr", path):
            return False
        if len(addends) != 1 or not isinstance(addends[0], int | float):
            return False
        if node.target in (operator.add, torch.add, "add"):
            self.create_proxy("call_method", "add_", (self.proxy(source), addends[0]), {})
            return True
        return node.target in (operator.iadd, "add_")

    def _tensor_path(self, module: nn.Module, name: str) -> str:
        path = self.path_of_module(module) if module is not self.root else ""
        return f"{path}.{name}" if path else name


def _is_symbol(value: Any) -> bool:
    return issubclass(type(value), Symbol)


@functools.cache
def _wrap_function(cls: Any) -> Callable[..., Any]:
    """Return a function that applies a custom autograd function, with its name."""

    def apply(*args: Any, **kwargs: Any) -> Any:
        return cls.apply(*args, **kwargs)

    apply.__name__ = apply.__qualname__ = f"apply_{cls.__name__}"
    return apply


def _autocast_state() -> tuple[bool, ...]:
    return tuple(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
