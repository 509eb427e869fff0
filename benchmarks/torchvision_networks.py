"""Networks of torchvision for `benchmarks.networks`, over a torch without CUDA too.

The registry's torchvision registers its operators from a library that is built for CUDA, and does
not import over a torch that is not, for two of them are asked for by name: they are defined here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

_DETECTION = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
for _name in ("nms", "qnms"):
    with suppress(RuntimeError):  # there already
        _library.define(_name + _DETECTION)  # type: ignore[no-untyped-call]


def __getattr__(name: str) -> Any:
    from torchvision import models

    rooms = (models, models.segmentation, models.detection)
    return getattr(next(room for room in rooms if hasattr(room, name)), name)
