"""Builders of torch modules from model parts: dense for images, spatial for tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from spbench_core.models.parts import CellOutput, Conv, MapShape, NetworkPiece, Pool
from spbench_parallel.models.imported.pieces import ImportedPiece
from spbench_parallel.models.imported.tiled_piece import build_tiled_piece
from spbench_parallel.models.modules import (
    CellModule,
    ConcatModule,
    ResidualModule,
    ShiftedConv2d,
    SpatialShiftedConv2d,
    sequential,
)
from spbench_parallel.spatial.conv import SpatialConv2d
from spbench_parallel.spatial.norm import SpatialBatchNorm2d
from spbench_parallel.spatial.operator import TiledWindow
from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
from spbench_parallel.spatial.replicated import AllGather, SpatialGlobalAvgPool2d
from spbench_parallel.spatial.tiling import Tiling


class ModuleBuilder(ABC):
    """The base of builders: modules without pixel windows, and containers."""

    @abstractmethod
    def conv(self, conv: Conv, shape: MapShape) -> nn.Module: ...

    @abstractmethod
    def norm(self, shape: MapShape) -> nn.Module: ...

    @abstractmethod
    def pool(self, pool: Pool, shape: MapShape) -> nn.Module: ...

    @abstractmethod
    def mean(self, shape: MapShape) -> nn.Module: ...

    @abstractmethod
    def flatten(self, shape: MapShape) -> nn.Module: ...

    def relu(self) -> nn.Module:
        return nn.ReLU()

    def identity(self) -> nn.Module:
        return nn.Identity()

    def linear(self, outputs: int, shape: MapShape) -> nn.Module:
        return nn.Linear(shape.values, outputs)

    def chain(self, steps: Mapping[str, nn.Module]) -> nn.Module:
        return sequential(steps)

    def residual(self, main: nn.Module, shortcut: nn.Module, relu: bool) -> nn.Module:
        return ResidualModule(main, shortcut, relu)

    def concat(self, branches: Mapping[str, nn.Module]) -> nn.Module:
        return ConcatModule(branches)

    def cell(
        self,
        prepare: Sequence[nn.Module],
        operations: Sequence[tuple[int, nn.Module]],
        output: CellOutput,
    ) -> nn.Module:
        return CellModule(prepare, operations, output)

    def piece(self, piece: NetworkPiece) -> nn.Module:
        module: nn.Module = piece.make_module()
        return module


class DenseBuilder(ModuleBuilder):
    """Builder of torch's modules, for whole images."""

    def conv(self, conv: Conv, shape: MapShape) -> nn.Module:
        if conv.shifted:
            return ShiftedConv2d(shape.channels, conv.filters)
        return nn.Conv2d(
            shape.channels,
            conv.filters,
            conv.kernel,
            conv.stride,
            conv.padding,
            groups=conv.groups,
            bias=conv.bias,
        )

    def norm(self, shape: MapShape) -> nn.Module:
        return nn.BatchNorm2d(shape.channels)

    def pool(self, pool: Pool, shape: MapShape) -> nn.Module:
        sizes = pool.kernel, pool.stride, pool.padding
        if pool.kind == "max":
            return nn.MaxPool2d(*sizes)
        return nn.AvgPool2d(*sizes, count_include_pad=False)

    def mean(self, shape: MapShape) -> nn.Module:
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def flatten(self, shape: MapShape) -> nn.Module:
        return nn.Flatten()


@dataclass(frozen=True)
class SpatialBuilder(ModuleBuilder):
    """Builder of operators over tiles, one tile per rank.

    Operators that turn a map into a vector give the vector to every rank, and all ranks compute the
    following layers alike. All parameters have the gradients of the whole image on every rank.

    Attributes:
        tiling: The tiles of the image. Each map is cut into the same grid, for the same ranks.
    """

    tiling: Tiling

    def conv(self, conv: Conv, shape: MapShape) -> nn.Module:
        tiling = self._tiling(shape)
        if conv.shifted:
            return SpatialShiftedConv2d(shape.channels, conv.filters, tiling=tiling)
        return SpatialConv2d(
            shape.channels,
            conv.filters,
            conv.kernel,
            conv.stride,
            conv.padding,
            groups=conv.groups,
            bias=conv.bias,
            tiling=tiling,
        )

    def norm(self, shape: MapShape) -> nn.Module:
        return SpatialBatchNorm2d(shape.channels, tiling=self._tiling(shape))

    def pool(self, pool: Pool, shape: MapShape) -> nn.Module:
        sizes = (pool.kernel, pool.stride, pool.padding)
        tiling = self._tiling(shape)
        if pool.kind == "max":
            return SpatialMaxPool2d(*sizes, tiling=tiling)
        return SpatialAvgPool2d(*sizes, count_include_pad=False, tiling=tiling)

    def mean(self, shape: MapShape) -> nn.Module:
        return nn.Sequential(SpatialGlobalAvgPool2d(tiling=self._tiling(shape)), nn.Flatten())

    def flatten(self, shape: MapShape) -> nn.Module:
        return nn.Sequential(AllGather(tiling=self._tiling(shape)), nn.Flatten())

    def piece(self, piece: NetworkPiece) -> nn.Module:
        assert isinstance(piece, ImportedPiece), "own networks have no other pieces"
        return build_tiled_piece(piece, self.tiling, self.make_tiled_norm)

    def make_tiled_norm(self, module: nn.BatchNorm2d, tiling: Tiling) -> nn.Module:
        """Return the tiled counterpart of a batch normalisation of whole images."""
        return SpatialBatchNorm2d(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
            tiling=tiling,
        )

    def chain(self, steps: Mapping[str, nn.Module]) -> nn.Module:
        # A ReLU before an operator with a halo writes into that operator's buffer.
        modules = dict(steps)
        for name, next_name in pairwise(steps):
            reader = getattr(steps[next_name], "tiled", None)
            if type(steps[name]) is nn.ReLU and isinstance(reader, TiledWindow):
                modules[name] = reader.make_preceding_relu()
        return sequential(modules)

    def _tiling(self, shape: MapShape) -> Tiling:
        return self.tiling.resized(shape.height, shape.width)
