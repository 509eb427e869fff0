"""MXNet's networks by name, and their parameters for an image size and a depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import count

from spbench_core.models.parts import MapShape, ModelError
from spbench_core.mxnet_networks import resnet as residual
from spbench_core.mxnet_networks.early_inception import googlenet, inception_bn
from spbench_core.mxnet_networks.graph import Parameter, ParameterCollector, TooSmallError
from spbench_core.mxnet_networks.inception_v3 import inception_v3
from spbench_core.mxnet_networks.inception_v4 import inception_resnet_v2, inception_v4
from spbench_core.mxnet_networks.mobilenet import mobilenet, mobilenetv2
from spbench_core.mxnet_networks.plain import VGG_CONVOLUTIONS, alexnet, lenet, mlp, vgg

VALUE_BYTES = 4
"""Bytes of a value: gradients count as float32, independently of the type in a run."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network, or a family of networks of several depths.

    Attributes:
        name: Its name in MXNet, with its width if there are several.
        help: A short description.
        add_layers: Adds the parameters of its layers to a collector. The arguments are collector,
            image and num_classes, and the depth if there are several.
        image_shape: Channels, height and width of the images that it was designed for.
        depths: The depths of a family; otherwise empty.
        num_layers: The default depth of a family; otherwise 0.
        small_height: The greatest image height for which there are other depths; 0: none.
    """

    name: str
    help: str
    add_layers: Callable[..., None]
    image_shape: tuple[int, int, int] = (3, 224, 224)
    depths: tuple[int, ...] = ()
    num_layers: int = 0
    small_height: int = 0

    @property
    def small_depths(self) -> str:
        """A description of the depths for images up to ``small_height``; empty if it is 0."""
        return residual.SMALL_DEPTHS if self.small_height else ""


def _make_residual(name: str, help_text: str, style: residual.Style) -> Network:
    return Network(
        name,
        help_text,
        partial(residual.resnet, style=style),
        depths=tuple(residual.UNITS),
        num_layers=50,
        small_height=style.small,
    )


def _make_mobilenet(name: str, help_text: str, alpha: float) -> Network:
    return Network(name, help_text, partial(mobilenet, alpha=alpha))


_ALL_NETWORKS = (
    _make_residual("resnet", "residual network, activation first", residual.RESNET),
    _make_residual("resnet-v1", "residual network as first published", residual.RESNET_V1),
    _make_residual("resnext", "residual network with 32 groups", residual.RESNEXT),
    Network("alexnet", "5 convolutions, and nearly all weights in 2 layers", alexnet),
    Network(
        "vgg", "3x3 convolutions, then 4096 wide", vgg, depths=(*VGG_CONVOLUTIONS,), num_layers=16
    ),
    Network("googlenet", "the first Inception", googlenet),
    Network("inception-bn", "Inception with batch normalization", inception_bn),
    Network("inception-v3", "Inception with 1x7 and 7x1", inception_v3, (3, 299, 299)),
    Network("inception-v4", "deeper, with a stem of branches", inception_v4, (3, 299, 299)),
    Network(
        "inception-resnet-v2", "Inception units that are added", inception_resnet_v2, (3, 299, 299)
    ),
    _make_mobilenet("mobilenet", "convolutions channel by channel", 1),
    _make_mobilenet("mobilenet-0.75", "three quarters of the filters", 0.75),
    _make_mobilenet("mobilenet-0.5", "half of the filters", 0.5),
    _make_mobilenet("mobilenet-0.25", "a quarter of the filters", 0.25),
    Network("mobilenetv2", "narrow ends, wide inside", mobilenetv2),
    Network("lenet", "2 convolutions, for digits", lenet, (1, 28, 28)),
    Network("mlp", "3 fully connected layers, for digits", mlp, (1, 28, 28)),
)
NETWORKS = {network.name: network for network in _ALL_NETWORKS}


def list_parameters(
    network: str,
    num_layers: int | None = None,
    image_shape: tuple[int, ...] | None = None,
    num_classes: int = 1000,
) -> list[Parameter]:
    """Return the weights and biases of a network, in the order of their keys.

    The order is that of MXNet's ``list_arguments``; a key is an index in the list. Parameters of
    batch normalization (gamma, beta) are left out, like in MXNet's measure.py.

    Args:
        network: One of `NETWORKS`.
        num_layers: The depth; None: the network's default.
        image_shape: Channels, height and width of an image; None: the network's default.
        num_classes: The number of classes.

    Raises:
        ModelError: There is no such network or depth, the image is too small for it, or a
            number is below 1.
    """
    if network not in NETWORKS:
        raise ModelError("network", _describe_unknown(network))
    network_spec = NETWORKS[network]
    image = _parse_shape(network_spec.image_shape if image_shape is None else image_shape)
    if num_classes < 1:
        raise ModelError("num_classes", f"there must be at least 1 class, not {num_classes}")
    depth = _resolve_depth(network_spec, num_layers, image.height)
    try:
        return _build_parameters(network_spec, image, num_classes, depth)
    except TooSmallError as error:
        raise ModelError(
            "image_shape", _describe_too_small(network_spec, image, depth, error)
        ) from None


def sum_megabytes(params: Iterable[Parameter]) -> float:
    """Return the size of parameters in MB of 10^6 bytes, with 4 bytes per value."""
    return sum(param.elements for param in params) * VALUE_BYTES / 1e6


def _build_parameters(
    network: Network, image: MapShape, num_classes: int, depth: int
) -> list[Parameter]:
    graph = ParameterCollector()
    network.add_layers(graph, image, num_classes, *((depth,) if network.depths else ()))
    return graph.parameters


def _parse_shape(shape: tuple[int, ...]) -> MapShape:
    if len(shape) != 3 or min(shape) < 1:
        expected = "channels, height and width, each at least 1"
        raise ModelError("image_shape", f"{_format_shape(shape)} is not {expected}")
    return MapShape(*shape)


def _resolve_depth(network: Network, num_layers: int | None, height: int) -> int:
    """Return the depth to build; 0 for a network that is not a family."""
    if num_layers is None:
        return network.num_layers
    if not network.depths:
        message = f"{network.name} has one depth only; leave num_layers out"
        raise ModelError("num_layers", message)
    if height <= network.small_height:
        is_valid = residual.is_small_depth(num_layers)
        family_name = f"{network.name} for images up to {network.small_height} high"
        depths_text = network.small_depths
    else:
        is_valid = num_layers in network.depths
        family_name = network.name
        depths_text = ", ".join(map(str, network.depths))
    if not is_valid:
        raise ModelError(
            "num_layers", f"{family_name} has no depth {num_layers}; there are {depths_text}"
        )
    return num_layers


def _describe_too_small(network: Network, image: MapShape, depth: int, error: TooSmallError) -> str:
    first_side = min(image.height, image.width) + 1
    side = next(side for side in count(first_side) if _fits(network, side, image.channels, depth))
    return (
        f"{_format_shape(image.shape)} is too small for {network.name}: {error}; the next square "
        f"image that fits is {image.channels},{side},{side}"
    )


def _format_shape(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


def _fits(network: Network, side: int, channels: int, depth: int) -> bool:
    try:
        _build_parameters(network, MapShape(channels, side, side), 1, depth)
    except TooSmallError:
        return False
    return True


def _describe_unknown(network: str) -> str:
    matches = get_close_matches(network, NETWORKS, n=1)
    hint = f" (did you mean {matches[0]}?)" if matches else ""
    return f"no network is called {network!r}{hint}"
