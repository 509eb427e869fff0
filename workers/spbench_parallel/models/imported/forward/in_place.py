"""Operators that write into their first argument, by their names."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.nn import functional

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
