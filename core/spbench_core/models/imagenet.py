"""ResNet-50 and ResNet-101 of the standard form for large images.

He et al., "Deep Residual Learning for Image Recognition", 2015. The stride is in a block's 3x3
convolution, like in torchvision and its published weights.
"""

from __future__ import annotations

from spbench_core.models.compose import Residual, chain
from spbench_core.models.layers import Layer, Model, Plain
from spbench_core.models.parts import (
    Conv,
    Identity,
    Linear,
    Map,
    Mean,
    ModelError,
    Norm,
    Part,
    Pool,
    Relu,
)

BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}
"""Blocks of each of the four stacks."""


def imagenet_resnet(image: Map, *, arch: str, num_classes: int = 1000, width: int = 64) -> Model:
    """Return a network of four stacks of bottlenecks.

    Args:
        image: The shape of an image, of any size.
        arch: One of `BLOCKS`.
        num_classes: The number of classes.
        width: Filters of the first convolution.

    Raises:
        ModelError: There is no such architecture.
    """
    if arch not in BLOCKS:
        raise ModelError("arch", f"there is no arch {arch!r}; there are {', '.join(BLOCKS)}")
    stem = chain(
        conv=Conv(width, 7, stride=2), norm=Norm(), relu=Relu(), pool=Pool("max", 3, 2, padding=1)
    )
    layers: list[Layer] = [Plain("stem", stem)]
    for stack, blocks in enumerate(BLOCKS[arch]):
        for block in range(blocks):
            stride = 2 if stack > 0 and block == 0 else 1
            name = f"stack{stack + 1}_block{block + 1}"
            layers.append(Plain(name, _block(width << stack, stride, first=block == 0)))
    layers.append(Plain("head", chain(mean=Mean(), linear=Linear(num_classes))))
    return Model(arch, image, tuple(layers))


def _block(narrow: int, stride: int, first: bool) -> Residual:
    wide = 4 * narrow
    main = chain(
        conv1=Conv(narrow),
        norm1=Norm(),
        relu1=Relu(),
        conv2=Conv(narrow, 3, stride),
        norm2=Norm(),
        relu2=Relu(),
        conv3=Conv(wide),
        norm3=Norm(),
    )
    shortcut: Part = Identity()
    if first:
        shortcut = chain(conv=Conv(wide, stride=stride), norm=Norm())
    return Residual(main, shortcut, relu=True)
