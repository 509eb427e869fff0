"""The networks of the model benchmarks, as layers whose shapes are known without torch.

What makes modules of them is in `spbench_workers.models.build`.
"""

from __future__ import annotations

from spbench_workers.models.count import Count
from spbench_workers.models.known import model
from spbench_workers.models.layers import Flow, Layer, Model, ModelError
from spbench_workers.models.parts import Map

__all__ = ["Count", "Flow", "Layer", "Map", "Model", "ModelError", "model"]
