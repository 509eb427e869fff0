"""Modules that combine others: residual, concatenation and cell, for whole images and tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from spbench_core.models.parts import CellOutput

CellFlow = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""The flow between cells: the output of the last one, and that of the one before it."""


class ResidualModule(nn.Module):
    """A residual block: the sum of two branches from one map, ``main`` and ``shortcut``."""

    def __init__(self, main: nn.Module, shortcut: nn.Module, relu: bool) -> None:
        super().__init__()
        self.main = main
        self.shortcut = shortcut
        self.last = nn.ReLU() if relu else nn.Identity()

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        total: torch.Tensor = self.last(self.main(data) + self.shortcut(data))
        return total


class ConcatModule(nn.ModuleDict):
    """A concatenation: the channels of several branches from one map."""

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Return the channels of all."""
        return torch.cat([branch(data) for branch in self.values()], dim=1)


class CellModule(nn.Module):
    """A cell, as `spbench_core.models.layers.Cell` describes it.

    Args:
        prepare: Modules for the previous cell's output, and for that of the one before.
        operations: Modules, each with the state that it reads.
        places: The states that are its output.
    """

    def __init__(
        self,
        prepare: Sequence[nn.Module],
        operations: Sequence[tuple[int, nn.Module]],
        places: CellOutput,
    ) -> None:
        super().__init__()
        self.prepare = nn.ModuleList(prepare)
        self.operations = nn.ModuleList(module for _, module in operations)
        self._reads = [state for state, _ in operations]
        self._places = places

    def forward(self, data: CellFlow) -> CellFlow:
        """Return the cell's output, and that of the cell before where the next one reads it."""
        before, older = data if isinstance(data, tuple) else (data, data)
        states = [self.prepare[0](before), self.prepare[1](older)]
        for first in range(0, len(self._reads), 2):
            one, other = (
                self.operations[index](states[self._reads[index]]) for index in (first, first + 1)
            )
            states.append(one + other)
        made = torch.cat([states[index] for index in self._places.concat], dim=1)
        return (made, before) if self._places.passes_previous else made


def sequential(steps: Mapping[str, nn.Module]) -> nn.Sequential:
    """Return modules one after the other, under their names."""
    made = nn.Sequential()
    for name, module in steps.items():
        made.add_module(name, module)
    return made
