"""The operators of one rank that are computed again at full size: which, by format and network."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from spbench_parallel.full_size.plain import PlainOperator
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.models.imported.plain_modules import find_used_once, is_plain_torch
from spbench_parallel.plan import ModelPlan

_ALL = (PlainOperator, nn.BatchNorm2d)
MULTIPLYING = (nn.Conv2d, nn.Linear)
"""Operators that sum products."""


def own_operators(
    plan: ModelPlan, stage: nn.Module, *, every: bool
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the operators of a stage that one rank computes alone, with their names.

    Args:
        plan: The model.
        stage: The rank's part of it.
        every: Whether all of them are checked, or only those that multiply.
    """
    kinds = _ALL if every else MULTIPLYING
    plain = [pair for pair in stage.named_modules() if isinstance(pair[1], kinds)]
    if not isinstance(plan.model, ImportedModel):
        yield from plain
        return
    alone = find_used_once(stage)
    yield from (
        (name, module) for name, module in plain if module in alone and is_plain_torch(module)
    )
