"""Modules that are recorded as one operator: torch's modules, and dropouts.

Subclasses of torch's modules count if they compute the same. Torch's dropouts are known by type.
Any other module is called on a small tensor under `DropByPositionMode`: it is a dropout if its
result equals that of a rank's stochastic operator.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from spbench_parallel.errors import CannotRunError
from spbench_parallel.models.imported.messages import (
    locate,
)
from spbench_parallel.models.imported.stochastic import (
    DROPOUT_UNITS,
    DropBatch,
    DropByPositionMode,
    StochasticOp,
    apply_drop,
)

MODE_DEPENDENT = (
    _NormBase,
    _DropoutNd,
    nn.RReLU,
    nn.FractionalMaxPool2d,
    nn.MultiheadAttention,
    nn.RNNBase,
)
"""Modules with different behaviour in training and evaluation."""
_NEUTRAL_METHODS = frozenset(
    ("__init__", "__repr__", "_get_name", "extra_repr", "reset_parameters", "reset_running_stats")
) | {"_reset_parameters", "train", "eval", "state_dict", "load_state_dict"}
"""Methods that a subclass of a torch module may override and still compute the same."""


def is_torch_operator(module: nn.Module) -> bool:
    """Return whether a module is torch's, or a subclass that computes the same."""
    if isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return False
    if "forward" in vars(module):
        return False
    user_classes = []
    for cls in type(module).__mro__:
        if cls.__module__.startswith("torch.nn"):
            torch_class = cls
            break
        user_classes.append(cls)
    else:
        return False
    if torch_class is nn.Module:
        return False
    defined_names = {
        name for cls in user_classes for name, value in vars(cls).items() if _is_method(value)
    }
    overrides = {name for name in defined_names - _NEUTRAL_METHODS if hasattr(torch_class, name)}
    properties = {
        name
        for cls in user_classes
        for name, value in vars(cls).items()
        if isinstance(value, property)
    }
    return not overrides and not properties


def _is_method(value: Any) -> bool:
    return callable(value) or isinstance(value, staticmethod | classmethod)


_UNITS = "image", "channel", "value"
MODE_ATTRIBUTE = "training"
"""The attribute of every module with its mode."""
_PROBE_SHAPE = 3, 2, 2
_PROBE_IMAGES = 64
_MAX_SEEDS = 64
"""Seeds to try: enough that a share of 0.001 drops an image."""


@dataclass(frozen=True, slots=True)
class StochasticRule:
    """The values that a module drops in training.

    Attributes:
        unit: Single values, channels or images; see `StochasticOp`.
        share: The share that it drops; 0 if it returns its input.
    """

    unit: str
    share: float


_RULES_BY_MODULE: WeakKeyDictionary[nn.Module, StochasticRule | None] = WeakKeyDictionary()


def find_stochastic_rule(module: nn.Module) -> StochasticRule | None:
    """Return the drop rule of a module; None if it is not a dropout."""
    if module not in _RULES_BY_MODULE:
        _RULES_BY_MODULE[module] = _find_rule(module)
    return _RULES_BY_MODULE[module]


def _find_rule(module: nn.Module) -> StochasticRule | None:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        units: dict[object, str] = {nn.Dropout.forward: "value", nn.Dropout2d.forward: "channel"}
        unit = units.get(type(module).forward)
        return (
            StochasticRule(unit, float(module.p))
            if unit and "forward" not in vars(module)
            else None
        )
    share = getattr(module, "drop_prob", getattr(module, "p", None))
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share < 1:
        return None
    if any(True for _ in (*module.children(), *module.parameters(), *module.buffers())):
        return None
    try:
        probe = copy.deepcopy(module)
    except Exception:  # a copy may raise any error
        return None
    unit = find_dropped_unit(lambda values: probe.train()(values), float(share))
    if unit is None or not _returns_input(lambda values: probe.eval()(values)):
        return None
    return StochasticRule(unit, float(share))


def find_dropped_unit(
    call: Callable[[torch.Tensor], torch.Tensor], share: float, *, images: int = _PROBE_IMAGES
) -> str | None:
    """Return the unit of which a callable drops a share in training; or None."""
    if share == 0:
        return _UNITS[0] if _returns_input(call) else None
    units = set(_UNITS)
    try:
        with torch.random.fork_rng(devices=[]):
            for seed in range(_MAX_SEEDS):
                units &= _find_matching_units(call, share, seed, images)
                if len(units) < 2:
                    break
    except Exception:  # it does not support maps
        return None
    return units.pop() if len(units) == 1 else None


def _find_matching_units(
    call: Callable[[torch.Tensor], torch.Tensor], share: float, seed: int, images: int
) -> set[str]:
    """Return the units for which a callable returns the expected result."""
    values = 1.0 + torch.arange(images * 12, dtype=torch.float64).reshape(images, *_PROBE_SHAPE)
    batch = DropBatch(seed, 0, tuple((0, image) for image in range(images)))
    with torch.no_grad(), DropByPositionMode(batch):
        output = call(values.clone())
    return {
        unit
        for unit in _UNITS
        if torch.allclose(
            output, apply_drop(values, StochasticOp(0, share, unit), batch, _PROBE_SHAPE)
        )
    }


def _returns_input(call: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    values = 1.0 + torch.arange(24, dtype=torch.float64).reshape(2, *_PROBE_SHAPE)
    state = torch.get_rng_state()
    try:
        output = call(values.clone())
        return torch.equal(output, values) and torch.equal(torch.get_rng_state(), state)
    except Exception:  # it does not support maps
        return False
    finally:
        torch.set_rng_state(state)


def find_stochastic_op(
    name: str, module: nn.Module, node: fx.Node, index: int, drawing_nodes: Set[fx.Node]
) -> StochasticOp | None:
    """Return the share and unit that a node drops in training; None without draws.

    Args:
        name: The network's name in errors.
        module: The network.
        node: The node.
        index: Its index among the nodes that draw.
        drawing_nodes: The nodes that draw random numbers.

    Raises:
        CannotRunError: It draws random numbers that cannot be drawn by position.
    """
    if node not in drawing_nodes:
        return None
    unit, share = _find_drop(module, node)
    if unit is None or share is None or not 0 < share < 1:
        raise CannotRunError(
            f"network {name}: {locate(node)} draws random numbers in training, and ranks draw "
            "others than one process; give network_args that make its share 0, as {dropout: 0}"
        )
    return StochasticOp(index, share, unit)


def _find_drop(module: nn.Module, node: fx.Node) -> tuple[str | None, float | None]:
    """Return the unit and the share that a node drops; None if they are unknown."""
    if node.op == "call_module":
        rule = find_stochastic_rule(module.get_submodule(str(node.target)))
        return (rule.unit, rule.share) if rule is not None else (None, None)
    if node.op != "call_function":
        return None, None
    arguments: dict[str, Any] = dict(zip(("p", "training"), node.args[1:3], strict=False))
    arguments |= node.kwargs
    if node.target in DROPOUT_UNITS:
        share = arguments.get("p", 0.5)
        training = arguments.get("training", arguments.get("train", True))
        is_known = isinstance(share, float | int) and _is_mode(training)
        return DROPOUT_UNITS[node.target], float(share) if is_known else None
    return _find_function_drop(node)


def _find_function_drop(node: fx.Node) -> tuple[str | None, float | None]:
    """Return the unit and share that a user's function drops, by calling it."""

    def call(values: torch.Tensor) -> Any:
        def replace_node(argument: fx.Node) -> Any:
            return values if argument is node.args[0] else True

        args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), replace_node)
        function: Any = node.target
        return function(*args, **kwargs)

    float_arguments = [
        argument for argument in (*node.args, *node.kwargs.values()) if type(argument) is float
    ]
    mode_arguments = [argument for argument in node.all_input_nodes if argument is not node.args[0]]
    if not mode_arguments or not all(_is_mode(argument) for argument in mode_arguments):
        return None, None
    unit_and_share = (
        (find_dropped_unit(call, share), share) for share in float_arguments if 0 < share < 1
    )
    return next(((unit, share) for unit, share in unit_and_share if unit is not None), (None, None))


def _is_mode(value: Any) -> bool:
    """Return whether an argument is False in evaluation and True in training."""
    return value is False or (isinstance(value, fx.Node) and value.target == MODE_ATTRIBUTE)
