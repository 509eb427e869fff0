"""The networks by name."""

from __future__ import annotations

from typing import Any

from spbench_core.models.amoebanet import amoebanet
from spbench_core.models.imagenet import imagenet_resnet
from spbench_core.models.layers import Model
from spbench_core.models.parts import Map, ModelError
from spbench_core.models.resnet import resnet

CHANNELS = 3
"""Of an image: red, green, blue."""


def make_model(name: str, *, image_size: tuple[int, int], num_classes: int, **config: Any) -> Model:
    """Return a network.

    Args:
        name: ``resnet`` or ``amoebanet``.
        image_size: Height and width of an image.
        num_classes: The number of classes.
        config: Of a resnet ``arch``, or else ``version`` and ``depth``; of an amoebanet
            ``num_layers``, ``num_filters``, ``pool3`` and ``shift``. What is None counts as left
            out. See `resnet`, `imagenet_resnet` and `amoebanet`.

    Raises:
        ModelError: There is no such network, or not for such images.
    """
    if num_classes < 1:
        raise ModelError("num_classes", f"there must be at least 1 class, not {num_classes}")
    if min(image_size) < 1:
        height, width = image_size
        raise ModelError("image_size", f"an image of {height}x{width} has no pixels")
    image = Map(CHANNELS, *image_size)
    words = {key: value for key, value in config.items() if value is not None}
    if name == "amoebanet":
        return amoebanet(image, num_classes=num_classes, **words)
    if name != "resnet":
        raise ModelError("model", f"no model is called {name!r}; there are resnet and amoebanet")
    if "arch" not in words:
        return resnet(image, num_classes=num_classes, **words)
    for key in ("version", "depth"):
        if key in words:
            raise ModelError(key, f"arch {words['arch']} has a {key} of its own; leave {key} out")
    return imagenet_resnet(image, num_classes=num_classes, **words)
