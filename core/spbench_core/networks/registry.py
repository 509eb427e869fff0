"""The networks by name, and their parameters for an image and a number of classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import count

from spbench_core.models.parts import Map, ModelError
from spbench_core.networks import resnet as residual
from spbench_core.networks.alexnet import alexnet
from spbench_core.networks.googlenet import googlenet
from spbench_core.networks.graph import NetworkGraph, Parameter, TooSmallError
from spbench_core.networks.inception_bn import inception_bn
from spbench_core.networks.inception_resnet_v2 import inception_resnet_v2
from spbench_core.networks.inception_v3 import inception_v3
from spbench_core.networks.inception_v4 import inception_v4
from spbench_core.networks.lenet import lenet, mlp
from spbench_core.networks.mobilenet import mobilenet, mobilenetv2
from spbench_core.networks.vgg import CONVOLUTIONS, vgg

VALUE_BYTES = 4
"""Bytes of a value: gradients are counted as float32, whatever type a run gives them."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network, or a family of one name and several depths.

    Attributes:
        name: Its name in MXNet, with its width where there are several.
        help: A description in a few words.
        layers: Adds its layers to a graph: (graph, image, num_classes), and the depth where
            there are several.
        image_shape: Channels, height and width that it was made for.
        depths: The depths that there are; none where there is no choice.
        num_layers: The depth unless another is asked for; 0 where there is no choice.
        small_height: Up to this height of the image there are other depths; 0 where there are
            none.
    """

    name: str
    help: str
    layers: Callable[..., None]
    image_shape: tuple[int, int, int] = (3, 224, 224)
    depths: tuple[int, ...] = ()
    num_layers: int = 0
    small_height: int = 0

    @property
    def small_depths(self) -> str:
        """The depths for images up to ``small_height``, in words; empty where it is 0."""
        return residual.SMALL_DEPTHS if self.small_height else ""


def _residual(name: str, help_text: str, style: residual.Style) -> Network:
    return Network(
        name,
        help_text,
        partial(residual.resnet, style=style),
        depths=tuple(residual.UNITS),
        num_layers=50,
        small_height=style.small,
    )


def _mobilenet(name: str, help_text: str, alpha: float) -> Network:
    return Network(name, help_text, partial(mobilenet, alpha=alpha))


_ALL = (
    _residual("resnet", "residual network, activation first", residual.RESNET),
    _residual("resnet-v1", "residual network as first published", residual.RESNET_V1),
    _residual("resnext", "residual network with 32 groups", residual.RESNEXT),
    Network("alexnet", "5 convolutions, and nearly all weights in 2 layers", alexnet),
    Network("vgg", "3x3 convolutions, then 4096 wide", vgg, depths=(*CONVOLUTIONS,), num_layers=16),
    Network("googlenet", "the first Inception", googlenet),
    Network("inception-bn", "Inception with batch normalization", inception_bn),
    Network("inception-v3", "Inception with 1x7 and 7x1", inception_v3, (3, 299, 299)),
    Network("inception-v4", "deeper, with a stem of branches", inception_v4, (3, 299, 299)),
    Network(
        "inception-resnet-v2", "Inception units that are added", inception_resnet_v2, (3, 299, 299)
    ),
    _mobilenet("mobilenet", "convolutions channel by channel", 1),
    _mobilenet("mobilenet-0.75", "three quarters of the filters", 0.75),
    _mobilenet("mobilenet-0.5", "half of the filters", 0.5),
    _mobilenet("mobilenet-0.25", "a quarter of the filters", 0.25),
    Network("mobilenetv2", "narrow ends, wide inside", mobilenetv2),
    Network("lenet", "2 convolutions, for digits", lenet, (1, 28, 28)),
    Network("mlp", "3 fully connected layers, for digits", mlp, (1, 28, 28)),
)
NETWORKS = {network.name: network for network in _ALL}


def list_parameters(
    network: str,
    num_layers: int | None = None,
    image_shape: tuple[int, ...] | None = None,
    num_classes: int = 1000,
) -> list[Parameter]:
    """Return the weights and biases of a network, in the order of their keys.

    The order is that of MXNet's ``list_arguments``; a key is a place in the list. What batch
    normalization learns (gamma, beta) is not counted, as in MXNet's measure.py.

    Args:
        network: One of `NETWORKS`.
        num_layers: The depth; None: the network's usual one.
        image_shape: Channels, height and width of an image; None: those that it was made for.
        num_classes: The number of classes.

    Raises:
        ModelError: There is no such network or depth, the image is too small for it, or a
            number is below 1.
    """
    if network not in NETWORKS:
        raise ModelError("network", _unknown(network))
    known = NETWORKS[network]
    image = _checked_shape(known.image_shape if image_shape is None else image_shape)
    if num_classes < 1:
        raise ModelError("num_classes", f"there must be at least 1 class, not {num_classes}")
    depth = _checked_depth(known, num_layers, image.height)
    try:
        return _built(known, image, num_classes, depth)
    except TooSmallError as error:
        raise ModelError("image_shape", _too_small(known, image, depth, error)) from None


def sum_megabytes(params: Iterable[Parameter]) -> float:
    """Return the size of parameters in MB of 10^6 bytes, at 4 bytes a value."""
    return sum(param.elements for param in params) * VALUE_BYTES / 1e6


def _built(network: Network, image: Map, num_classes: int, depth: int) -> list[Parameter]:
    graph = NetworkGraph()
    network.layers(graph, image, num_classes, *((depth,) if network.depths else ()))
    return graph.parameters


def _checked_shape(shape: tuple[int, ...]) -> Map:
    if len(shape) != 3 or min(shape) < 1:
        expected = "channels, height and width, each at least 1"
        raise ModelError("image_shape", f"{_shape_text(shape)} is not {expected}")
    return Map(*shape)


def _checked_depth(network: Network, num_layers: int | None, height: int) -> int:
    """Return the depth to build; 0 where there is no choice."""
    if num_layers is None:
        return network.num_layers
    if not network.depths:
        only_one = f"{network.name} has one depth only; leave num_layers out"
        raise ModelError("num_layers", only_one)
    small = height <= network.small_height
    if residual.is_small_depth(num_layers) if small else num_layers in network.depths:
        return num_layers
    name = f"{network.name} for images up to {network.small_height} high" if small else network.name
    there_are = network.small_depths if small else ", ".join(map(str, network.depths))
    raise ModelError("num_layers", f"{name} has no depth {num_layers}; there are {there_are}")


def _too_small(network: Network, image: Map, depth: int, error: TooSmallError) -> str:
    smallest = min(image.height, image.width) + 1
    side = next(side for side in count(smallest) if _fits(network, side, image.channels, depth))
    return (
        f"{_shape_text(image.shape)} is too small for {network.name}: {error}; the next square "
        f"image that fits is {image.channels},{side},{side}"
    )


def _shape_text(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


def _fits(network: Network, side: int, channels: int, depth: int) -> bool:
    try:
        _built(network, Map(channels, side, side), 1, depth)
    except TooSmallError:
        return False
    return True


def _unknown(network: str) -> str:
    near = get_close_matches(network, NETWORKS, n=1)
    return f"no network is called {network!r}" + (f" (did you mean {near[0]}?)" if near else "")
