"""The models of the ``model.*`` benchmarks, by name."""

from __future__ import annotations

from typing import Any

from spbench_core.models.amoebanet import amoebanet
from spbench_core.models.layers import Model
from spbench_core.models.parts import MapShape, ModelError
from spbench_core.models.resnet import imagenet_resnet, resnet

CHANNELS = 3
"""The channels of an image: red, green and blue."""


def make_model(name: str, *, image_size: tuple[int, int], num_classes: int, **config: Any) -> Model:
    """Return a network.

    Args:
        name: ``resnet`` or ``amoebanet``.
        image_size: Height and width of an image.
        num_classes: The number of classes.
        config: For a resnet ``arch``, or ``version`` and ``depth``; for an amoebanet
            ``num_layers``, ``num_filters``, ``pool3`` and ``shift``. None: the default. See
            `resnet`, `imagenet_resnet` and `amoebanet`.

    Raises:
        ModelError: There is no such network, or it does not support such images.
    """
    if num_classes < 1:
        raise ModelError("num_classes", f"there must be at least 1 class, not {num_classes}")
    if min(image_size) < 1:
        height, width = image_size
        raise ModelError("image_size", f"an image of {height}x{width} has no pixels")
    image = MapShape(CHANNELS, *image_size)
    options = {option: setting for option, setting in config.items() if setting is not None}
    if name == "amoebanet":
        return amoebanet(image, num_classes=num_classes, **options)
    if name != "resnet":
        raise ModelError("model", f"no model is called {name!r}; there are resnet and amoebanet")
    if "arch" not in options:
        return resnet(image, num_classes=num_classes, **options)
    for option in ("version", "depth"):
        if option in options:
            message = f"arch {options['arch']} has a {option} of its own; leave {option} out"
            raise ModelError(option, message)
    return imagenet_resnet(image, num_classes=num_classes, **options)
