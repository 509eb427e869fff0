"""Symbols of a recorded forward pass: they represent tensors, record operations.

For the user's code a symbol is an instance of the class that it represents, such as Tensor. This
module also has the operators that write into their first argument, which symbols support.
"""

from __future__ import annotations

import operator
import os
import sys
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx, nn
from torch.fx.proxy import Attribute
from torch.nn import functional

from spbench_parallel.models.imported.forward.sizes import SizedProxy
from spbench_parallel.models.imported.loading import is_user_code

IN_PLACE: dict[Any, Callable[[Any, Any], Any]] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv,
    operator.imod: operator.mod,
    operator.ipow: operator.pow,
    operator.imatmul: operator.matmul,
    operator.ilshift: operator.lshift,
    operator.irshift: operator.rshift,
    operator.iand: operator.and_,
    operator.ior: operator.or_,
    operator.ixor: operator.xor,
}
"""Operators that write into their first argument, and those that create a new value."""


def writes_by_name(node: fx.Node) -> bool:
    """Return whether a node writes into its first argument, by its name."""
    if node.op == "call_method":
        return _has_underscore(str(node.target))
    if node.op != "call_function":
        return False
    name = getattr(node.target, "__name__", "")
    return node.target in IN_PLACE or (_is_torch_function(node.target) and _has_underscore(name))


def _has_underscore(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _is_torch_function(function: Any) -> bool:
    name = getattr(function, "__name__", "")
    return any(getattr(module, name, None) is function for module in (torch, functional))


if TYPE_CHECKING:
    from spbench_parallel.models.imported.forward.recorder import GraphRecorder

_TYPE_CHECKING_FILES = tuple(
    os.path.abspath(module.__file__)
    for module in (torch, torch.jit, torch._jit_internal, torch.nn.parameter, typing)
    if module.__file__
)
"""Modules that check a type on behalf of their caller, such as `torch.is_tensor`."""


class Symbol(SizedProxy):
    """A symbol that records in-place operators, and has the type that it represents."""

    def __getattr__(self, k: str) -> Attribute:
        return _SymbolAttribute(self, k)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("tracer", "node", "_node", "root", "attr"):
            _get_recorder(self).reject(
                f"the forward pass sets {name} of a tensor, which a graph cannot; make a new tensor"
            )
        object.__setattr__(self, name, value)

    def __setitem__(self, index: Any, value: Any) -> None:
        _get_recorder(self).reject(
            "the forward pass writes into a part of a tensor; make a new one, by torch.where, "
            "torch.cat or torch.nn.functional.pad"
        )

    def __float__(self) -> float:
        return float(_get_recorder(self).compute_number(self))

    def __int__(self) -> int:
        return int(_get_recorder(self).compute_number(self))

    @property
    def _is_param(self) -> bool:
        """Whether it represents a parameter; `isinstance(symbol, nn.Parameter)` reads it."""
        return _get_recorder(self).find_type(self) is nn.Parameter

    @property
    def __class__(self) -> type:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.endswith(_TYPE_CHECKING_FILES):
            frame = frame.f_back
        if frame is None or not is_user_code(frame.f_code.co_filename):
            return type(self)
        return _get_recorder(self).find_type(self) or type(self)

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("the class of a symbol is that of what it represents")


def _get_recorder(symbol: fx.Proxy) -> GraphRecorder:
    return cast("GraphRecorder", symbol.tracer)  # only a recorder creates symbols


def _make_in_place_method(function: Callable[..., Any]) -> Callable[[fx.Proxy, Any], fx.Proxy]:
    def write(self: fx.Proxy, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return write


for _function in IN_PLACE:
    setattr(Symbol, f"__{_function.__name__}__", _make_in_place_method(_function))


class _SymbolAttribute(Symbol, Attribute):
    """An attribute of a symbol, with a node from its first read on."""
