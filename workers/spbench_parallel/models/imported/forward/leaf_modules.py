"""x."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from spbench_parallel.models.imported.stochastic import (
    DropBatch,
    DropByPositionMode,
    StochasticOp,
    apply_drop,
)

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


_UNITS = "image", "channel", "value"
_SHAPE = 3, 2, 2
_IMAGES = 64
_SEEDS = 64
"""Seeds to try: enough that a share of 0.001 drops an image."""


@dataclass(frozen=True, slots=True)
class DropRule:
    """What a module drops in training.

    Attributes:
        unit: Single values, channels or images; see `Chance`.
        share: The share that it drops; 0 if it returns its input.
    """

    unit: str
    share: float


_KNOWN: WeakKeyDictionary[nn.Module, DropRule | None] = WeakKeyDictionary()


def find_drop_rule(module: nn.Module) -> DropRule | None:
    """Return what a module drops; None if it does anything else."""
    if module not in _KNOWN:
        _KNOWN[module] = _find_rule(module)
    return _KNOWN[module]


def _find_rule(module: nn.Module) -> DropRule | None:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        units: dict[object, str] = {nn.Dropout.forward: "value", nn.Dropout2d.forward: "channel"}
        unit = units.get(type(module).forward)
        return DropRule(unit, float(module.p)) if unit and "forward" not in vars(module) else None
    share = getattr(module, "drop_prob", getattr(module, "p", None))
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share < 1:
        return None
    if any(True for _ in (*module.children(), *module.parameters(), *module.buffers())):
        return None
    try:
        probe = copy.deepcopy(module)
    except Exception:  # whatever an attribute says
        return None
    unit = find_dropped_unit(lambda values: probe.train()(values), float(share))
    if unit is None or not _returns_input(lambda values: probe.eval()(values)):
        return None
    return DropRule(unit, float(share))


def find_dropped_unit(
    call: Callable[[torch.Tensor], torch.Tensor], share: float, *, images: int = _IMAGES
) -> str | None:
    """Return the unit of which a callable drops a share in training; None if it does not."""
    if share == 0:
        return _UNITS[0] if _returns_input(call) else None
    units = set(_UNITS)
    try:
        with torch.random.fork_rng(devices=[]):
            for seed in range(_SEEDS):
                units &= _equal_units(call, share, seed, images)
                if len(units) < 2:
                    break
    except Exception:  # it takes no maps
        return None
    return units.pop() if len(units) == 1 else None


def _equal_units(
    call: Callable[[torch.Tensor], torch.Tensor], share: float, seed: int, images: int
) -> set[str]:
    """Return the units for which a callable returns what is expected."""
    values = 1.0 + torch.arange(images * 12, dtype=torch.float64).reshape(images, *_SHAPE)
    drawn = DropBatch(seed, 0, tuple((0, image) for image in range(images)))
    with torch.no_grad(), DropByPositionMode(drawn):
        result = call(values.clone())
    return {
        unit
        for unit in _UNITS
        if torch.allclose(result, apply_drop(values, StochasticOp(0, share, unit), drawn, _SHAPE))
    }


def _returns_input(call: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    values = 1.0 + torch.arange(24, dtype=torch.float64).reshape(2, *_SHAPE)
    state = torch.get_rng_state()
    try:
        result = call(values.clone())
        return torch.equal(result, values) and torch.equal(torch.get_rng_state(), state)
    except Exception:  # it takes no maps
        return False
    finally:
        torch.set_rng_state(state)
