"""The example network under the name that shipped suites and recorded runs have."""

from spbench_parallel.models.imported.example import UNet

__all__ = ["UNet"]
