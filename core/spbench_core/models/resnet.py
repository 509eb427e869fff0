"""Residual networks, in the form for small images and in that for large ones.

The networks for small images are those of Keras' CIFAR-10 example, which the benchmarks of MPI4DL
use too, without the final softmax, because the loss takes logits. Like in these benchmarks, the
first convolution of a v2 block is 3x3 instead of 1x1. He et al., "Deep Residual Learning for Image
Recognition", 2015; "Identity Mappings in Deep Residual Networks", 2016.
"""

from __future__ import annotations

from spbench_core.models.compose import Chain, Residual, make_chain
from spbench_core.models.layers import Layer, Model, Plain
from spbench_core.models.parts import (
    Conv,
    Flatten,
    Identity,
    Linear,
    MapShape,
    Mean,
    ModelError,
    Norm,
    Part,
    Pool,
    Relu,
)

STACKS = 3
LAYERS_PER_BLOCK = {1: 2, 2: 3}
"""The convolutions of a block, by version; each stack has at least one block."""
POOL = 8
"""Rows and columns of the mean pool before the classifier."""
MIN_SIDE = 29
"""The smallest side of an image: after two halvings, which round up, 8 are left for the pool."""


def resnet(
    image: MapShape, *, num_classes: int = 10, version: int = 2, depth: int = 110, width: int = 16
) -> Model:
    """Return a network of three stacks of residual blocks.

    Args:
        image: The shape of an image.
        num_classes: The number of classes.
        version: 1: as first published; 2: pre-activation.
        depth: Layers with weights on the longest path: 6n+2 for version 1, 9n+2 for version 2.
        width: Filters of the first convolution.

    Raises:
        ModelError: There is no such version or depth, or the image is too small.
    """
    blocks_per_stack = _count_blocks_per_stack(version, depth)
    for side in (image.height, image.width):
        if side < MIN_SIDE:
            raise ModelError(
                "image_size",
                f"an image of {image.height}x{image.width} pixels is too small: its map before "
                f"the classifier must hold a pool of {POOL}x{POOL}; "
                f"take {MIN_SIDE} pixels or more each way",
            )
    make_layers = _make_v1_layers if version == 1 else _make_v2_layers
    layers = make_layers(blocks_per_stack, width, num_classes)
    return Model(f"ResNet-{depth} v{version}", image, tuple(layers))


def _count_blocks_per_stack(version: int, depth: int) -> int:
    """Return the blocks of each stack."""
    if version not in LAYERS_PER_BLOCK:
        raise ModelError("version", f"there is no ResNet version {version}; there are 1 and 2")
    depth_step = STACKS * LAYERS_PER_BLOCK[version]
    blocks, remainder = divmod(depth - 2, depth_step)
    if remainder or blocks < 1:
        lower_depth = 2 + depth_step * max(1, blocks)
        nearest_depths = [lower_depth] if blocks < 1 else [lower_depth, lower_depth + depth_step]
        raise ModelError(
            "depth",
            f"ResNet v{version} has no depth {depth}; its depths are {depth_step}n+2, "
            f"the nearest {' and '.join(map(str, nearest_depths))}",
        )
    return blocks


def _make_stem(width: int) -> Plain:
    return Plain("stem", make_chain(conv=Conv(width, 3, bias=True), norm=Norm(), relu=Relu()))


def _make_v1_layers(blocks_per_stack: int, width: int, num_classes: int) -> list[Layer]:
    layers: list[Layer] = [_make_stem(width)]
    for stack in range(STACKS):
        filters = width << stack
        for block in range(blocks_per_stack):
            halves_size = stack > 0 and block == 0
            main = _make_basic_branch(filters, 2 if halves_size else 1)
            shortcut: Part = Conv(filters, stride=2, bias=True) if halves_size else Identity()
            layers.append(Plain(_name_block(stack, block), Residual(main, shortcut, relu=True)))
    layers.append(Plain("head", _make_classifier(num_classes)))
    return layers


def _make_basic_branch(filters: int, stride: int) -> Chain:
    """Return the main branch of a block of version 1."""
    return make_chain(
        conv1=Conv(filters, 3, stride, bias=True),
        norm1=Norm(),
        relu1=Relu(),
        conv2=Conv(filters, 3, bias=True),
        norm2=Norm(),
    )


def _make_v2_layers(blocks_per_stack: int, width: int, num_classes: int) -> list[Layer]:
    layers: list[Layer] = [_make_stem(width)]
    inner_filters = width
    outer_filters = 4 * width
    for stack in range(STACKS):
        for block in range(blocks_per_stack):
            stride = 2 if stack > 0 and block == 0 else 1
            main = _make_bottleneck_branch(
                inner_filters, outer_filters, stride, activated=stack == 0 and block == 0
            )
            shortcut: Part = (
                Conv(outer_filters, stride=stride, bias=True) if block == 0 else Identity()
            )
            layers.append(Plain(_name_block(stack, block), Residual(main, shortcut)))
        inner_filters, outer_filters = outer_filters, 2 * outer_filters
    head = Chain((("norm", Norm()), ("relu", Relu()), *_make_classifier(num_classes).steps))
    layers.append(Plain("head", head))
    return layers


def _make_bottleneck_branch(
    inner_filters: int, outer_filters: int, stride: int, activated: bool
) -> Chain:
    """Return a block's main branch; an activated input needs no norm."""
    norm_steps = () if activated else (("norm1", Norm()), ("relu1", Relu()))
    conv_steps = make_chain(
        conv1=Conv(inner_filters, 3, stride, bias=True),
        norm2=Norm(),
        relu2=Relu(),
        conv2=Conv(inner_filters, 3, bias=True),
        norm3=Norm(),
        relu3=Relu(),
        conv3=Conv(outer_filters, bias=True),
    )
    return Chain((*norm_steps, *conv_steps.steps))


def _make_classifier(num_classes: int) -> Chain:
    return make_chain(pool=Pool("avg", POOL, POOL), flatten=Flatten(), linear=Linear(num_classes))


def _name_block(stack: int, block: int) -> str:
    return f"stack{stack + 1}_block{block + 1}"


IMAGENET_BLOCKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}
"""Blocks of each of the four stacks, by architecture."""


def imagenet_resnet(
    image: MapShape, *, arch: str, num_classes: int = 1000, width: int = 64
) -> Model:
    """Return a network of four stacks of bottlenecks, the form for large images.

    The stride is in a block's 3x3 convolution, like in torchvision and its published weights.

    Args:
        image: The shape of an image, of any size.
        arch: One of `IMAGENET_BLOCKS`.
        num_classes: The number of classes.
        width: Filters of the first convolution.

    Raises:
        ModelError: There is no such architecture.
    """
    if arch not in IMAGENET_BLOCKS:
        raise ModelError(
            "arch", f"there is no arch {arch!r}; there are {', '.join(IMAGENET_BLOCKS)}"
        )
    stem = make_chain(
        conv=Conv(width, 7, stride=2), norm=Norm(), relu=Relu(), pool=Pool("max", 3, 2, padding=1)
    )
    layers: list[Layer] = [Plain("stem", stem)]
    for stack, blocks in enumerate(IMAGENET_BLOCKS[arch]):
        for block in range(blocks):
            stride = 2 if stack > 0 and block == 0 else 1
            part = _make_imagenet_block(width << stack, stride, first=block == 0)
            layers.append(Plain(_name_block(stack, block), part))
    layers.append(Plain("head", make_chain(mean=Mean(), linear=Linear(num_classes))))
    return Model(arch, image, tuple(layers))


def _make_imagenet_block(inner_filters: int, stride: int, first: bool) -> Residual:
    outer_filters = 4 * inner_filters
    main = make_chain(
        conv1=Conv(inner_filters),
        norm1=Norm(),
        relu1=Relu(),
        conv2=Conv(inner_filters, 3, stride),
        norm2=Norm(),
        relu2=Relu(),
        conv3=Conv(outer_filters),
        norm3=Norm(),
    )
    shortcut: Part = Identity()
    if first:
        shortcut = make_chain(conv=Conv(outer_filters, stride=stride), norm=Norm())
    return Residual(main, shortcut, relu=True)
