"""Hooks on a network's modules and parameters: traced like the calls that they are, or refused.

A forward hook becomes operators of the graph, so that every layout computes it. The weights of
``weight_norm``, ``spectral_norm`` and pruning are computed by hooks too, which stay with their
module.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.loading import shorten_path

_OF_WEIGHTS = WeightNorm, SpectralNorm, BasePruningMethod
"""Hooks that compute a weight of their module before each call."""
_WRAPPERS = "DataParallel", "DistributedDataParallel"
_CONTAINERS = nn.ModuleList, nn.ModuleDict, nn.Sequential


def check_hooks(network: str, module: nn.Module) -> None:
    """Check that each hook of a network can be traced, or stays with its module.

    Args:
        network: Its name in errors.
        module: It.

    Raises:
        CannotRunError: A hook would be lost, or a parameter has no shape yet.
    """
    for inner, kinds in (("_orig_mod", ("OptimizedModule",)), ("module", _WRAPPERS)):
        if type(module).__name__ in kinds:
            raise CannotRunError(
                f"network {network}: it is a {type(module).__name__}; give the network itself, "
                f"which is its {inner}"
            )
    for name, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise CannotRunError(
                f"network {network}: {name} has no shape yet; call the network with an image once, "
                "where it is made"
            )
    for path, hook, kind, remedy in _lost_hooks(module):
        raise CannotRunError(
            f"network {network}: {_place_of(hook)}{path or 'the network'} has a {kind}, which "
            f"copies of it on the ranks do not have; {remedy}"
        )


def _lost_hooks(module: nn.Module) -> Iterator[tuple[str, Any, str, str]]:
    """Yield path, hook, kind and remedy of each hook that would be lost."""
    in_loss = "leave it out, or change gradients in the forward pass"
    for path, child in module.named_modules():
        for kind, hooks in (
            ("backward hook", child._backward_hooks),
            ("backward pre-hook", child._backward_pre_hooks),
        ):
            yield from ((path, hook, kind, in_loss) for hook in hooks.values())
        forward = [*child._forward_pre_hooks.values(), *child._forward_hooks.values()]
        several = len(forward) > 1 and any(isinstance(hook, _OF_WEIGHTS) for hook in forward)
        if path == "" or several or _is_within_torchs(module, path):
            others = [hook for hook in forward if not isinstance(hook, _OF_WEIGHTS)]
            move = "call it in the forward pass of the network instead"
            yield from ((path, hook, "forward hook", move) for hook in others)
    if "forward" in vars(module):
        move = "define forward in its class"
        yield "", vars(module)["forward"], "forward of its own", move
    for path, parameter in module.named_parameters():
        for kind, hooks_of_kind in (
            ("hook on its gradient", parameter._backward_hooks),
            ("hook on its gradient", parameter._post_accumulate_grad_hooks),
        ):
            yield from ((path, hook, kind, in_loss) for hook in (hooks_of_kind or {}).values())


def _is_within_torchs(module: nn.Module, path: str) -> bool:
    """Return whether a submodule is a part of one of torch's own, which is called as a whole."""
    above = path.split(".")[:-1]
    parents = (module.get_submodule(".".join(above[:end])) for end in range(1, len(above) + 1))
    return any(
        type(parent).__module__.startswith("torch.nn") and not isinstance(parent, _CONTAINERS)
        for parent in parents
    )


def check_copies(network: str, module: nn.Module) -> None:
    """Check that a deep copy of a network computes with its own weights.

    Raises:
        CannotRunError: A hook or a replaced ``forward`` keeps a module or tensor in its closure.
    """
    for path, child in module.named_modules():
        functions = [*child._forward_pre_hooks.values(), *child._forward_hooks.values()]
        functions += [vars(child)["forward"]] if "forward" in vars(child) else []
        for function in functions:
            for name, value in _kept_by(function):
                owner = getattr(value, "__self__", value)
                if isinstance(owner, nn.Module | torch.Tensor):
                    raise CannotRunError(
                        f"network {network}: {_place_of(function)}a function set on "
                        f"{path or 'the network'} keeps {name} ({type(value).__name__}), and a "
                        "copy of the network would use the same one; make it a method of a module"
                    )


def _kept_by(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a function keeps from its definition: in its closure, or as defaults."""
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None)
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=False):
        yield name, cell.cell_contents
    for value in getattr(function, "__defaults__", None) or ():
        yield "a default", value


def is_hooked(module: nn.Module) -> bool:
    """Return whether a module has forward hooks that are traced."""
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    return any(not isinstance(hook, _OF_WEIGHTS) for hook in hooks)


def has_estimate(module: nn.Module) -> bool:
    """Return whether a module computes its weights from an estimate that each call moves."""
    return any(
        type(part).__name__ == "_SpectralNorm"
        or any(isinstance(hook, SpectralNorm) for hook in part._forward_pre_hooks.values())
        for part in module.modules()
    )


def has_own_forward(module: nn.Module) -> bool:
    """Return whether a module's forward is not that of its class."""
    return "forward" in vars(module)


@contextmanager
def replace_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a call of a module run its hooks around another forward pass."""
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        del vars(module)["forward"]


@contextmanager
def suspend_hooks(module: Any) -> Iterator[None]:
    """Take the traced hooks off a module, or off what is none, while it is copied."""
    if not (isinstance(module, nn.Module) and is_hooked(module)):
        yield
        return
    kept = module._forward_pre_hooks, module._forward_hooks
    module._forward_pre_hooks = OrderedDict()
    module._forward_hooks = OrderedDict()
    try:
        yield
    finally:
        module._forward_pre_hooks, module._forward_hooks = kept


def _place_of(function: Any) -> str:
    """Return the line where a function is defined as ``file:line: ``; empty if it is unknown."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return f"{shorten_path(code.co_filename)}:{code.co_firstlineno}: " if code is not None else ""
