"""x."""

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
"""Operators that write into their first argument, and those that make a new value."""


def writes_by_name(node: fx.Node) -> bool:
    """Return whether a method, an operator or a function writes into its first argument."""
    if node.op == "call_method":
        return _has_underscore(str(node.target))
    if node.op != "call_function":
        return False
    word = getattr(node.target, "__name__", "")
    return node.target in IN_PLACE or (_is_torchs(node.target) and _has_underscore(word))


def _has_underscore(word: str) -> bool:
    return word.endswith("_") and not word.endswith("__")


def _is_torchs(function: Any) -> bool:
    word = getattr(function, "__name__", "")
    return any(getattr(module, word, None) is function for module in (torch, functional))


if TYPE_CHECKING:
    from spbench_parallel.models.imported.forward.recording import GraphRecorder

_ASKING = tuple(
    os.path.abspath(module.__file__)
    for module in (torch, torch.jit, torch._jit_internal, torch.nn.parameter, typing)
    if module.__file__
)
"""Modules that ask for a type on behalf of their caller, such as `torch.is_tensor`."""


class Symbol(SizedProxy):
    """A symbol that records operators that write, and has the type of what it represents."""

    def __getattr__(self, k: str) -> Attribute:
        return _SymbolAttribute(self, k)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("tracer", "node", "_node", "root", "attr"):
            _recorder(self).refuse(
                f"the forward pass sets {name} of a tensor, which a graph cannot; make a new tensor"
            )
        object.__setattr__(self, name, value)

    def __setitem__(self, index: Any, value: Any) -> None:
        _recorder(self).refuse(
            "the forward pass writes into a part of a tensor; make a new one, by torch.where, "
            "torch.cat or torch.nn.functional.pad"
        )

    def __float__(self) -> float:
        return float(_recorder(self).number_of(self))

    def __int__(self) -> int:
        return int(_recorder(self).number_of(self))

    @property
    def _is_param(self) -> bool:
        """Whether it represents a parameter, which `isinstance(symbol, nn.Parameter)` asks."""
        return _recorder(self).type_of(self) is nn.Parameter

    @property
    def __class__(self) -> type:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.endswith(_ASKING):
            frame = frame.f_back
        if frame is None or not is_user_code(frame.f_code.co_filename):
            return type(self)
        return _recorder(self).type_of(self) or type(self)

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("the class of a symbol is that of what it represents")


def _recorder(symbol: fx.Proxy) -> GraphRecorder:
    return cast("GraphRecorder", symbol.tracer)  # only a recorder makes symbols


def _writing(function: Callable[..., Any]) -> Callable[[fx.Proxy, Any], fx.Proxy]:
    def write(self: fx.Proxy, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return write


for _function in IN_PLACE:
    setattr(Symbol, f"__{_function.__name__}__", _writing(_function))


class _SymbolAttribute(Symbol, Attribute):
    """An attribute of a symbol, which has a node from the first read on."""
