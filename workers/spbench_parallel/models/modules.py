"""Modules of the built-in models: residual, concatenation, cell, shifted conv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional

from spbench_core.models.parts import CellOutput
from spbench_parallel.spatial.conv import SpatialConv2d, make_window
from spbench_parallel.spatial.operator import TiledWindow
from spbench_parallel.spatial.tiling import Tiling

CellFlow = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""The data between cells: the output of the last cell, and that of the one before it."""


class ResidualModule(nn.Module):
    """A residual block: the sum of the branches ``main`` and ``shortcut``."""

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
    """The concatenated channels of several branches from one map."""

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Return the channels of all branches."""
        return torch.cat([branch(data) for branch in self.values()], dim=1)


class CellModule(nn.Module):
    """A cell, as described by `spbench_core.models.layers.Cell`.

    Args:
        prepare: Modules for the output of the previous cell, and of the one before it.
        operations: Modules, each with the index of the state that it reads.
        output: The states that form its output.
    """

    def __init__(
        self,
        prepare: Sequence[nn.Module],
        operations: Sequence[tuple[int, nn.Module]],
        output: CellOutput,
    ) -> None:
        super().__init__()
        self.prepare = nn.ModuleList(prepare)
        self.operations = nn.ModuleList(module for _, module in operations)
        self._state_by_operation = [state for state, _ in operations]
        self._output = output

    def forward(self, data: CellFlow) -> CellFlow:
        """Return the cell's output, and the previous output if the next cell reads it."""
        previous, older = data if isinstance(data, tuple) else (data, data)
        states = [self.prepare[0](previous), self.prepare[1](older)]
        for first_operation in range(0, len(self._state_by_operation), 2):
            left, right = (
                self.operations[index](states[self._state_by_operation[index]])
                for index in (first_operation, first_operation + 1)
            )
            states.append(left + right)
        output = torch.cat([states[index] for index in self._output.concat], dim=1)
        return (output, previous) if self._output.passes_previous else output


def sequential(steps: Mapping[str, nn.Module]) -> nn.Sequential:
    """Return named modules as a sequence."""
    sequence = nn.Sequential()
    for name, module in steps.items():
        sequence.add_module(name, module)
    return sequence


class ShiftedConv2d(nn.Conv2d):
    """The shifted convolution of a whole image, without bias.

    It is a 1x1 convolution of the pixels at odd rows and columns, and halves height and width. It
    is the second half of a factorized reduction (NASNet, AmoebaNet): a convolution of stride 2 on
    an image shifted by one pixel. If the number of rows or columns is odd, the last is skipped,
    where the shift has moved in zeros.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 1, stride=2, bias=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the convolution: ``batch x out_channels x height // 2 x width // 2``."""
        return functional.conv2d(image[:, :, 1::2, 1::2], self.weight)


class SpatialShiftedConv2d(SpatialConv2d):
    """The shifted convolution of an image in tiles, one per rank; see `SpatialConv2d`."""

    def __init__(self, in_channels: int, out_channels: int, *, tiling: Tiling) -> None:
        super().__init__(in_channels, out_channels, 1, bias=False, tiling=tiling)
        # It reads the last of each 2x2 pixels, which a window of one pixel cannot describe.
        self.window = make_window(2, 2, 0)
        self.tiled = TiledWindow(tiling, self.window)
        self.output = self.tiled.output

    def read(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the last of each 2x2 pixels, starting at an even row and column."""
        return pixels[:, :, 1::2, 1::2]
