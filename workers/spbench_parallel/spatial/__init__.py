"""Spatial parallelism: torch operators over images that are cut into tiles, one tile a rank.

The names in ``__all__`` are the library's; docs/spatial.md describes them. Each is imported when it
is first asked for, so that a rank loads only the operators that it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spbench_core.late_import import late_names

if TYPE_CHECKING:
    from spbench_parallel.spatial.all_gather import AllGather
    from spbench_parallel.spatial.conv import SpatialConv2d
    from spbench_parallel.spatial.fused.blocks import FusedBlock, FusedSequential, fuse
    from spbench_parallel.spatial.fused.graph_blocks import FusedGraph
    from spbench_parallel.spatial.global_pool import SpatialGlobalAvgPool2d
    from spbench_parallel.spatial.norm import SpatialBatchNorm2d
    from spbench_parallel.spatial.pool import SpatialAvgPool2d, SpatialMaxPool2d
    from spbench_parallel.spatial.redistribute import Redistribute
    from spbench_parallel.spatial.tiling import Tiling
    from spbench_parallel.spatial.transports import TransportError

__all__ = [
    "AllGather",
    "FusedBlock",
    "FusedGraph",
    "FusedSequential",
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
_MODULES = {
    "AllGather": "all_gather",
    "FusedBlock": "fused.blocks",
    "FusedGraph": "fused.graph_blocks",
    "FusedSequential": "fused.blocks",
    "Redistribute": "redistribute",
    "SpatialAvgPool2d": "pool",
    "SpatialBatchNorm2d": "norm",
    "SpatialConv2d": "conv",
    "SpatialGlobalAvgPool2d": "global_pool",
    "SpatialMaxPool2d": "pool",
    "Tiling": "tiling",
    "TransportError": "transports",
    "fuse": "fused.blocks",
}

__getattr__ = late_names(__name__, _MODULES)
