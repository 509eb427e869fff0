"""The public interface of the training library.

Other modules may change in any version.

`ParallelNetwork` trains a network over stages, tiles and replicas (docs/library.md). The tiled
operators (docs/spatial.md) are torch modules for images that are split into tiles, one per rank.
Each name is imported on first use, so that a rank loads only the operators that it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench_core.lazy_imports import make_lazy_getattr

if TYPE_CHECKING:
    from spbench_core.layout.tiles import Box, Grid
    from spbench_parallel.errors import CannotRunError
    from spbench_parallel.network import Load, ParallelNetwork
    from spbench_parallel.spatial.conv import SpatialConv2d
    from spbench_parallel.spatial.fused.blocks import FusedBlock, FusedSequential, fuse
    from spbench_parallel.spatial.fused.graph_blocks import FusedGraph
    from spbench_parallel.spatial.norm import SpatialBatchNorm2d
    from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
    from spbench_parallel.spatial.redistribute import Redistribute
    from spbench_parallel.spatial.replicated import AllGather, SpatialGlobalAvgPool2d
    from spbench_parallel.spatial.tiling import Tiling
    from spbench_parallel.spatial.transports import TransportError

__all__ = [
    "AllGather",
    "Box",
    "CannotRunError",
    "FusedBlock",
    "FusedGraph",
    "FusedSequential",
    "Grid",
    "Load",
    "ParallelNetwork",
    "Redistribute",
    "SpatialAvgPool2d",
    "SpatialBatchNorm2d",
    "SpatialConv2d",
    "SpatialGlobalAvgPool2d",
    "SpatialMaxPool2d",
    "Tiling",
    "TransportError",
    "fuse",
]
MODULES = {
    "AllGather": "spbench_parallel.spatial.replicated",
    "Box": "spbench_core.layout.tiles",
    "CannotRunError": "spbench_parallel.errors",
    "FusedBlock": "spbench_parallel.spatial.fused.blocks",
    "FusedGraph": "spbench_parallel.spatial.fused.graph_blocks",
    "FusedSequential": "spbench_parallel.spatial.fused.blocks",
    "Grid": "spbench_core.layout.tiles",
    "Load": "spbench_parallel.network",
    "ParallelNetwork": "spbench_parallel.network",
    "Redistribute": "spbench_parallel.spatial.redistribute",
    "SpatialAvgPool2d": "spbench_parallel.spatial.pool",
    "SpatialBatchNorm2d": "spbench_parallel.spatial.norm",
    "SpatialConv2d": "spbench_parallel.spatial.conv",
    "SpatialGlobalAvgPool2d": "spbench_parallel.spatial.replicated",
    "SpatialMaxPool2d": "spbench_parallel.spatial.pool",
    "Tiling": "spbench_parallel.spatial.tiling",
    "TransportError": "spbench_parallel.spatial.transports",
    "fuse": "spbench_parallel.spatial.fused.blocks",
}

__getattr__ = make_lazy_getattr(__name__, MODULES)
