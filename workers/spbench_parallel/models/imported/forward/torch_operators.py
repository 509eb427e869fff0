"""Modules that are operators: torch's own, and subclasses that compute the same."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

BY_MODE = (
    _NormBase,
    _DropoutNd,
    nn.RReLU,
    nn.FractionalMaxPool2d,
    nn.MultiheadAttention,
    nn.RNNBase,
)
"""Modules that do something else in training than in evaluation."""
_NOT_BEHAVIOUR = frozenset(
    ("__init__", "__repr__", "_get_name", "extra_repr", "reset_parameters", "reset_running_stats")
) | {"_reset_parameters", "train", "eval", "state_dict", "load_state_dict"}
"""Methods that a subclass of a torch module may override and compute the same."""


def is_torch_operator(module: nn.Module) -> bool:
    """Return whether a module is torch's, or of a subclass that computes the same."""
    if isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return False
    if "forward" in vars(module):
        return False
    users = []
    for cls in type(module).__mro__:
        if cls.__module__.startswith("torch.nn"):
            torchs = cls
            break
        users.append(cls)
    else:
        return False
    if torchs is nn.Module:
        return False
    own = {name for cls in users for name, value in vars(cls).items() if _is_behaviour(value)}
    overrides = {name for name in own - _NOT_BEHAVIOUR if hasattr(torchs, name)}
    properties = {
        name for cls in users for name, value in vars(cls).items() if isinstance(value, property)
    }
    return not overrides and not properties


def _is_behaviour(value: Any) -> bool:
    return callable(value) or isinstance(value, staticmethod | classmethod)
