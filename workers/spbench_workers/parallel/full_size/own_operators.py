"""The operators of one rank that are computed again at full size: which, by format and network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import fx, nn

from spbench_workers.models.imported.model import ImportedModel
from spbench_workers.parallel.full_size.plain import PlainOperator
from spbench_workers.parallel.plan import ModelPlan

_ALL = (PlainOperator, nn.BatchNorm2d)
_MULTIPLYING = (nn.Conv2d, nn.Linear)
_TORCHS = frozenset(
    {
        nn.Conv2d,
        nn.Linear,
        nn.BatchNorm2d,
        nn.AvgPool2d,
        nn.AdaptiveAvgPool2d,
        nn.MaxPool2d,
        nn.ReLU,
    }
)
"""Torch's own operators, of which there are references; subclasses may do anything."""


def own_operators(
    plan: ModelPlan, stage: nn.Module, *, every: bool
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the operators of a stage that one rank computes by itself, by name.

    Args:
        plan: The model.
        stage: The rank's part of it.
        every: Whether all of them are checked, or only those that multiply.
    """
    kinds = _ALL if every else _MULTIPLYING
    plain = [pair for pair in stage.named_modules() if isinstance(pair[1], kinds)]
    if not isinstance(plan.model, ImportedModel):
        yield from plain
        return
    alone = _used_once(stage)
    yield from ((name, module) for name, module in plain if module in alone and _is_torchs(module))


def _is_torchs(module: nn.Module) -> bool:
    """Return whether a module of the user's computes what torch's reference does, and no more."""
    if type(module) not in _TORCHS or module._forward_hooks or module._forward_pre_hooks:
        return False
    if module._backward_hooks or module._backward_pre_hooks:
        return False
    match module:
        case nn.Conv2d():
            return module.padding_mode == "zeros"
        case nn.BatchNorm2d():
            return module.affine and module.track_running_stats and module.momentum is not None
        case nn.AdaptiveAvgPool2d():
            return module.output_size in (1, (1, 1))
        case nn.MaxPool2d():
            return not module.return_indices
    return True


def _used_once(stage: nn.Module) -> set[nn.Module]:
    """Return the modules that run once a pass, with parameters that no other operator has."""
    runs: Counter[nn.Module] = Counter()
    holders: Counter[nn.Parameter] = Counter()
    for piece in stage.modules():
        if not isinstance(piece, fx.GraphModule):
            continue
        for node in piece.graph.nodes:
            if node.op == "call_module":
                module = piece.get_submodule(str(node.target))
                runs[module] += 1
                holders.update(set(module.parameters()))
            elif node.op == "get_attr":
                holder, _, name = str(node.target).rpartition(".")
                value = getattr(piece.get_submodule(holder), name, None)
                if isinstance(value, nn.Parameter):
                    holders[value] += 1
    return {
        module
        for module, count in runs.items()
        if count == 1 and all(holders[one] == 1 for one in module.parameters())
    }
