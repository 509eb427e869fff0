"""The former name of the operators over tiles in `spbench_parallel.api`, for scripts."""

from typing import TYPE_CHECKING

from spbench_core.late_import import late_names
from spbench_parallel.api import MODULES

if TYPE_CHECKING:
    from spbench_parallel.api import (
        AllGather,
        FusedBlock,
        FusedGraph,
        FusedSequential,
        Redistribute,
        SpatialAvgPool2d,
        SpatialBatchNorm2d,
        SpatialConv2d,
        SpatialGlobalAvgPool2d,
        SpatialMaxPool2d,
        Tiling,
        TransportError,
        fuse,
    )

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

__getattr__ = late_names(__name__, {name: MODULES[name] for name in __all__})
