"""Networks of torchvision for `benchmarks.networks`, for any torch.

The registry's torchvision has a library of operators that is built for CUDA. Over a torch without
CUDA the import fails, because it looks up two of these operators by name. They are defined here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

_DETECTION = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
for _name in ("nms", "qnms"):
    with suppress(RuntimeError):  # already defined
        _library.define(_name + _DETECTION)  # type: ignore[no-untyped-call]


def __getattr__(name: str) -> Any:
    from torchvision import models

    packages = (models, models.segmentation, models.detection)
    return getattr(next(package for package in packages if hasattr(package, name)), name)
