"""Modules of an imported network that are equal to torch's, used once per pass."""

from __future__ import annotations

from collections import Counter

from torch import fx, nn

from spbench_parallel.spatial.conv import SpatialConv2d

_COMPARABLE_TYPES = frozenset(
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
"""Torch's operators with a reference; subclasses may do anything."""


def find_comparable_convs(stage: nn.Module) -> list[nn.Conv2d]:
    """Return the convolutions of a stage that are compared at full size.

    In a user's network these are torch's and their counterparts over tiles, if used once.
    """
    convs = [module for module in stage.modules() if isinstance(module, nn.Conv2d)]
    if not any(isinstance(module, fx.GraphModule) for module in stage.modules()):
        return convs
    used_once = find_used_once(stage)
    return [
        conv
        for conv in convs
        if conv in used_once and (isinstance(conv, SpatialConv2d) or is_plain_torch(conv))
    ]


def is_plain_torch(module: nn.Module) -> bool:
    """Return whether a user's module computes exactly the same as torch's module."""
    if type(module) not in _COMPARABLE_TYPES or module._forward_hooks or module._forward_pre_hooks:
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


def find_used_once(stage: nn.Module) -> set[nn.Module]:
    """Return the modules that run once per pass and do not share parameters."""
    run_counts: Counter[nn.Module] = Counter()
    use_counts: Counter[nn.Parameter] = Counter()
    for piece in stage.modules():
        if not isinstance(piece, fx.GraphModule):
            continue
        for node in piece.graph.nodes:
            if node.op == "call_module":
                module = piece.get_submodule(str(node.target))
                run_counts[module] += 1
                use_counts.update(set(module.parameters()))
            elif node.op == "get_attr":
                owner, _, name = str(node.target).rpartition(".")
                value = getattr(piece.get_submodule(owner), name, None)
                if isinstance(value, nn.Parameter):
                    use_counts[value] += 1
    return {
        module
        for module, count in run_counts.items()
        if count == 1 and all(use_counts[parameter] == 1 for parameter in module.parameters())
    }
