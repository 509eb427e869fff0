"""Hooks on a network's modules and parameters: traced like calls, or rejected.

A forward hook becomes operators of the graph, so that every layout computes it. ``weight_norm``,
``spectral_norm`` and pruning also compute weights by hooks; these stay with their module.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.loading import shorten_path

_WEIGHT_HOOKS = WeightNorm, SpectralNorm, BasePruningMethod
"""Hooks that compute a weight of their module before each call."""
_WRAPPERS = "DataParallel", "DistributedDataParallel"
_CONTAINERS = nn.ModuleList, nn.ModuleDict, nn.Sequential


def check_hooks(network: str, module: nn.Module) -> None:
    """Check that each hook of a network can be traced, or stays with its module.

    Args:
        network: Its name in errors.
        module: The network.

    Raises:
        CannotRunError: A hook would be lost, or a parameter is uninitialised.
    """
    for attribute_name, class_names in (("_orig_mod", ("OptimizedModule",)), ("module", _WRAPPERS)):
        if type(module).__name__ in class_names:
            raise CannotRunError(
                f"network {network}: it is a {type(module).__name__}; give the network itself, "
                f"which is its {attribute_name}"
            )
    for name, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise CannotRunError(
                f"network {network}: {name} has no shape yet; call the network with an image once, "
                "where it is made"
            )
    for path, hook, kind, remedy in _iter_lost_hooks(module):
        raise CannotRunError(
            f"network {network}: {_describe_definition(hook)}{path or 'the network'} has a {kind}, "
            f"which copies of it on the ranks do not have; {remedy}"
        )


class _LostHook(NamedTuple):
    """A hook that copies on ranks would lose: path of its owner, kind and remedy."""

    path: str
    hook: Any
    kind: str
    remedy: str


def _iter_lost_hooks(module: nn.Module) -> Iterator[_LostHook]:
    gradient_remedy = "leave it out, or change gradients in the forward pass"
    for path, child in module.named_modules():
        for kind, hooks in (
            ("backward hook", child._backward_hooks),
            ("backward pre-hook", child._backward_pre_hooks),
        ):
            yield from (_LostHook(path, hook, kind, gradient_remedy) for hook in hooks.values())
        forward_hooks = [*child._forward_pre_hooks.values(), *child._forward_hooks.values()]
        has_mixed_hooks = len(forward_hooks) > 1 and any(
            isinstance(hook, _WEIGHT_HOOKS) for hook in forward_hooks
        )
        if path == "" or has_mixed_hooks or _is_inside_torch_module(module, path):
            lost_hooks = [hook for hook in forward_hooks if not isinstance(hook, _WEIGHT_HOOKS)]
            remedy = "call it in the forward pass of the network instead"
            yield from (_LostHook(path, hook, "forward hook", remedy) for hook in lost_hooks)
    if "forward" in vars(module):
        remedy = "define forward in its class"
        yield _LostHook("", vars(module)["forward"], "forward of its own", remedy)
    for path, parameter in module.named_parameters():
        for kind, hooks_of_kind in (
            ("hook on its gradient", parameter._backward_hooks),
            ("hook on its gradient", parameter._post_accumulate_grad_hooks),
        ):
            yield from (
                _LostHook(path, hook, kind, gradient_remedy)
                for hook in (hooks_of_kind or {}).values()
            )


def _is_inside_torch_module(module: nn.Module, path: str) -> bool:
    """Return whether a submodule is part of a torch module, called as a whole."""
    parent_names = path.split(".")[:-1]
    parents = (
        module.get_submodule(".".join(parent_names[:end]))
        for end in range(1, len(parent_names) + 1)
    )
    return any(
        type(parent).__module__.startswith("torch.nn") and not isinstance(parent, _CONTAINERS)
        for parent in parents
    )


def check_copies(network: str, module: nn.Module) -> None:
    """Check that a deep copy of a network computes with its own weights.

    Raises:
        CannotRunError: A hook or a replaced ``forward`` captures a module or tensor.
    """
    for path, child in module.named_modules():
        user_functions = [*child._forward_pre_hooks.values(), *child._forward_hooks.values()]
        user_functions += [vars(child)["forward"]] if "forward" in vars(child) else []
        for function in user_functions:
            for name, value in _iter_captured(function):
                owner = getattr(value, "__self__", value)
                if isinstance(owner, nn.Module | torch.Tensor):
                    raise CannotRunError(
                        f"network {network}: {_describe_definition(function)}a function set on "
                        f"{path or 'the network'} keeps {name} ({type(value).__name__}), and a "
                        "copy of the network would use the same one; make it a method of a module"
                    )


def _iter_captured(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield a function's captured values: its closure and defaults."""
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None)
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=False):
        yield name, cell.cell_contents
    for value in getattr(function, "__defaults__", None) or ():
        yield "a default", value


def is_hooked(module: nn.Module) -> bool:
    """Return whether a module has forward hooks that are traced."""
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    return any(not isinstance(hook, _WEIGHT_HOOKS) for hook in hooks)


def has_estimate(module: nn.Module) -> bool:
    """Return whether a module's weights use an estimate that each call updates."""
    return any(
        type(part).__name__ == "_SpectralNorm"
        or any(isinstance(hook, SpectralNorm) for hook in part._forward_pre_hooks.values())
        for part in module.modules()
    )


def has_own_forward(module: nn.Module) -> bool:
    """Return whether a module has a forward that is not of its class."""
    return "forward" in vars(module)


@contextmanager
def replace_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Replace the forward pass of a module, so that a call runs its hooks around it."""
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        del vars(module)["forward"]


@contextmanager
def suspend_hooks(module: Any) -> Iterator[None]:
    """Remove the traced hooks of a module while it is copied.

    Other objects are unchanged.
    """
    if not (isinstance(module, nn.Module) and is_hooked(module)):
        yield
        return
    hooks = module._forward_pre_hooks, module._forward_hooks
    module._forward_pre_hooks = OrderedDict()
    module._forward_hooks = OrderedDict()
    try:
        yield
    finally:
        module._forward_pre_hooks, module._forward_hooks = hooks


def _describe_definition(function: Any) -> str:
    """Return the line that defines a function as ``file:line: ``; empty if unknown."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return f"{shorten_path(code.co_filename)}:{code.co_firstlineno}: " if code is not None else ""
