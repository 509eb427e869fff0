"""Small networks with constructs that a traced graph can lose.

A network is correct in every layout, or is rejected when it is imported, with the user's line. Each
gets images of three channels and returns five logits.
"""

from __future__ import annotations

import random
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH = 4
CLASSES = 5
ACCEPTED: dict[str, Any] = {}
"""Networks that are correct in every layout."""
REJECTED: dict[str, tuple[Any, str]] = {}
"""Networks that are rejected, each with a pattern of the message."""
LINE = r"awkward_networks\.py:\d+: "
"""The user's line, which begins most messages."""
_make: Any
_draw: Any


class Net(nn.Module):
    """A stem, an operation on its maps, a convolution, and a head.

    Args:
        act: Changes the maps of the stem; it gets the network, too.
        prepare: Changes the new network.
    """

    def __init__(
        self,
        act: Callable[[Any, Any], Any],
        prepare: Callable[[Any], None] | None = None,
    ) -> None:
        super().__init__()
        self.act = act
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.side = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)
        if prepare is not None:
            prepare(self)

    def forward(self, image: Any) -> Any:
        maps = self.act(self, self.norm(self.stem(image)))
        return self.head(torch.sigmoid(self.conv(maps)).mean((2, 3)))


def add_accepted(prepare: Callable[[Any], None] | None = None) -> Callable[[Any], Any]:
    """Return a decorator that adds a network that is correct in every layout."""

    def add(act: Any) -> Any:
        ACCEPTED[act.__name__] = lambda: Net(act, prepare)
        return act

    return add


def add_rejected(
    message: str, prepare: Callable[[Any], None] | None = None, *, line: bool = True
) -> Callable[[Any], Any]:
    """Return a decorator that adds a network that is rejected with a message."""

    def add(act: Any) -> Any:
        REJECTED[act.__name__] = lambda: Net(act, prepare), (LINE if line else "") + ".*" + message
        return act

    return add


# Classes by their names.


class ConvDropoutNormReLU(nn.Module):
    """A block of nnU-Net with a name that contains dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.norm = nn.InstanceNorm2d(WIDTH, affine=True)
        self.act = nn.LeakyReLU(inplace=True)

    def forward(self, maps: Any) -> Any:
        return self.act(self.norm(self.conv(maps)))


class DropPathBlock(nn.Module):
    """A convolution with the share of a dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.drop_prob = 0.5
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, maps: Any) -> Any:
        return self.conv(maps) * self.drop_prob


class StochasticDepthless(nn.Module):
    """A module of no parameters that mixes pixels, with a ``p``."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.25

    def forward(self, maps: Any) -> Any:
        return maps + self.p * functional.avg_pool2d(maps, 3, 1, 1)


class MyDropout(nn.Dropout):
    """A dropout with another name."""


class ScaledDropout(nn.Dropout):
    """A dropout with its own forward pass."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2.0 * functional.dropout(input, self.p, self.training)


class DropWholeImages(nn.Module):
    """Stochastic depth under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.4

    def forward(self, maps: Any) -> Any:
        if not self.training:
            return maps
        keep = 1.0 - self.p
        return maps * torch.empty(len_of(maps)).bernoulli_(keep).div_(keep)


def len_of(maps: Any) -> Any:
    """Return the shape of a number for each image."""
    return (maps.shape[0], 1, 1, 1)


def part(make: Callable[[], nn.Module]) -> Callable[[Any], None]:
    """Give a network a part."""
    return lambda net: setattr(net, "part", make())


for _make in (ConvDropoutNormReLU, DropPathBlock, StochasticDepthless):
    ACCEPTED[f"named_{_make.__name__}"] = lambda make=_make: Net(
        lambda net, maps: net.part(maps), part(make)
    )


@add_accepted(lambda net: setattr(net, "flatten", nn.Conv2d(WIDTH, WIDTH, 3, padding=1)))
def conv_named_flatten(net, maps):
    return net.flatten(maps)


@add_accepted(lambda net: setattr(net, "reshape", nn.Conv2d(WIDTH, WIDTH, 3, padding=1)))
def conv_named_reshape(net, maps):
    return net.reshape(maps)


# Buffers.


def counter(net: Any) -> None:
    """Give a network a buffer."""
    net.register_buffer("n", torch.zeros((), dtype=torch.long))


def statistics(net: Any) -> None:
    """Give a network a buffer for each channel."""
    net.register_buffer("mean", torch.zeros(WIDTH))


@add_accepted(counter)
def counter_add(net, maps):
    if net.training:
        net.n.add_(1)
    return maps


@add_accepted(counter)
def counter_iadd(net, maps):
    if net.training:
        net.n += 1
    return maps


@add_accepted(counter)
def counter_assigned(net, maps):
    if net.training:
        net.n = net.n + 2
    return maps


class BatchNormAct2d(nn.BatchNorm2d):
    """Batch normalisation like that of timm."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        factor = self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        training = self.training or (self.running_mean is None and self.running_var is None)
        maps = functional.batch_norm(
            input,
            self.running_mean if not self.training or self.track_running_stats else None,
            self.running_var if not self.training or self.track_running_stats else None,
            self.weight,
            self.bias,
            training,
            factor,
            self.eps,
        )
        return functional.relu(maps)


@add_rejected(r"changes n in evaluation too", counter)
def counter_in_both_modes(net, maps):
    net.n.add_(1)
    return maps


@add_rejected(r"changes n in the forward pass", counter)
def counter_read(net, maps):
    if net.training:
        net.n.add_(1)
    return maps * net.n


@add_rejected(r"changes n", counter)
def counter_read_before(net, maps):
    maps = maps + net.n
    net.n += 1
    return maps


@add_rejected(r"changes mean", statistics)
def statistics_by_hand(net, maps):
    if net.training:
        with torch.no_grad():
            net.mean.mul_(0.9).add_(0.1 * maps.mean((0, 2, 3)))
    return maps - maps.mean((0, 2, 3), keepdim=True)


@add_rejected(r"changes mean", statistics)
def statistics_assigned(net, maps):
    if net.training:
        net.mean = 0.9 * net.mean + 0.1 * maps.detach().mean((0, 2, 3))
    return maps


@add_rejected(r"writes into a part of a tensor", statistics)
def statistics_by_index(net, maps):
    net.mean[:] = maps.detach().mean((0, 2, 3))
    return maps


@add_rejected(r"changes mean", statistics)
def statistics_copied(net, maps):
    net.mean.copy_(maps.detach().mean((0, 2, 3)))
    return maps


@add_rejected(r"changes n", counter, line=False)
def buffer_by_dict(net, maps):
    net._buffers["n"].add_(1)
    return maps


@add_rejected(r"sets data of a tensor", statistics)
def buffer_data(net, maps):
    net.mean.data = maps.detach().mean((0, 2, 3))
    return maps


@add_rejected(r"changes conv\.weight")
def parameter_changed(net, maps):
    with torch.no_grad():
        net.conv.weight.mul_(0.9)
    return maps


@add_rejected(r"changes conv\.weight")
def parameter_clamped(net, maps):
    net.conv.weight.data.clamp_(-1, 1)
    return maps


@add_rejected(r"is another one in a second call", lambda net: setattr(net, "calls", 0))
def python_counter(net, maps):
    net.calls += 1
    return maps * net.calls


@add_rejected(r"reads a tensor of an earlier call", lambda net: setattr(net, "last", None))
def last_maps(net, maps):
    output = maps if net.last is None else maps + net.last
    net.last = maps
    return output


@add_accepted(lambda net: setattr(net, "cached", None))
def cached_table(net, maps):
    if net.cached is None:
        net.cached = torch.linspace(0.5, 1.5, WIDTH).view(1, -1, 1, 1)
    return maps * net.cached


@add_rejected(r"is another one in a second call")
def clock(net, maps):
    return maps * (time.monotonic_ns() % 1000003 / 1e6)


# Operators that write.


def inplace_modules() -> dict[str, Callable[[], nn.Module]]:
    """Return torch's modules that can write into their input."""
    return {
        kind.__name__: lambda kind=kind: kind(inplace=True)
        for kind in (
            *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.SiLU, nn.Mish),
            *(nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh),
        )
    } | {"Threshold": lambda: nn.Threshold(0.1, 0.2, inplace=True)}


for _name, _make in inplace_modules().items():
    ACCEPTED[f"inplace_{_name}"] = lambda make=_make: Net(
        lambda net, maps: net.part(maps) + net.side(maps), part(make)
    )


@add_accepted(part(lambda: nn.ReLU(inplace=True)))
def preactivation(net, maps):
    return net.side(net.part(maps)) + maps


def part_and_identity(net):
    part(lambda: nn.ReLU(inplace=True))(net)
    net.same = nn.Identity()


@add_accepted(part_and_identity)
def identity_written(net, maps):
    same = net.same(maps)
    return net.side(net.part(maps)) + same


@add_accepted(part(lambda: nn.Dropout(0.3, inplace=True)))
def inplace_dropout(net, maps):
    return net.part(maps) + net.side(maps)


@add_accepted()
def power_in_place(net, maps):
    other = maps
    maps **= 2
    return maps + net.side(other)


@add_accepted()
def sum_in_place(net, maps):
    other = maps
    maps += 1
    return maps * other


@add_accepted()
def quotient_in_place(net, maps):
    other = maps
    maps /= 3
    other -= 2
    return maps * other


@add_accepted()
def size_in_place(net, maps):
    height = maps.shape[2]
    before = height
    height += 3
    return maps * before / height


@add_accepted()
def relu_function_in_place(net, maps):
    torch.relu_(maps)
    return maps + net.side(maps)


@add_accepted()
def functional_in_place(net, maps):
    functional.leaky_relu_(maps, 0.2)
    return maps + functional.hardtanh(net.side(maps), -0.5, 0.5, True)


@add_accepted()
def relu_by_position(net, maps):
    functional.relu(maps, True)
    return maps


@add_accepted()
def methods_in_place(net, maps):
    maps.mul_(2).add_(1).clamp_(-1, 2)
    maps.sigmoid_()
    return maps


@add_accepted()
def method_with_tensor(net, maps):
    other = net.side(maps)
    other.addcmul_(maps, maps, value=0.5)
    return other + maps


@add_rejected(r"writes into memory that .* shares")
def view_written(net, maps):
    part = maps[:, :2]
    part.mul_(2)
    return maps


@add_rejected(r"writes into memory that .* shares")
def base_written(net, maps):
    part = maps[:, :2]
    maps.mul_(2)
    return maps + part.mean(1, keepdim=True)


@add_rejected(r"writes into memory that .* shares")
def flat_view_written(net, maps):
    flat = maps.flatten(2)
    flat.relu_()
    return maps


@add_rejected(r"writes into memory that .* shares")
def chunk_written(net, maps):
    first = maps.narrow(1, 0, 2)
    first.mul_(2)
    return torch.cat([maps, maps], 1)[:, :WIDTH]


@add_rejected(r"writes into memory that .* shares")
def detached_written(net, maps):
    maps.detach().mul_(2)
    return maps


@add_rejected(r"writes into memory that .* shares")
def data_written(net, maps):
    maps.data.mul_(2)
    return maps


@add_accepted()
def view_written_alone(net, maps):
    flat = maps.flatten(2)
    flat.relu_()
    return flat.unflatten(2, (maps.shape[2], maps.shape[3]))


@add_rejected(r"writes into a part of a tensor")
def item_written(net, maps):
    maps[:, 0] = 0
    return maps


@add_rejected(r"writes into a part of a tensor")
def item_multiplied(net, maps):
    maps[:, 0] *= 2
    return maps


@add_rejected(r"writes into")
def new_tensor_filled(net, maps):
    output = torch.zeros_like(maps)
    output[:, ::2] = maps[:, ::2]
    return output


@add_rejected(r"")
def constant_filled(net, maps):
    output = torch.zeros(WIDTH)
    output[0] = maps.mean()
    return maps * output.view(1, -1, 1, 1)


@add_rejected(r"writes into its input")
def copied_into(net, maps):
    other = net.side(maps)
    other.copy_(maps)
    return other


@add_rejected(r"writes into its input")
def result_written(net, maps):
    output = torch.empty_like(maps)
    torch.add(maps.detach(), 1, out=output)
    return output


@add_rejected(r"writes into its input|changes")
def zeroed(net, maps):
    other = net.side(maps)
    other.zero_()
    return maps + other


# Contexts, types and gradients.


@add_accepted()
def without_gradients(net, maps):
    with torch.no_grad():
        scale = torch.sigmoid(maps).mean((2, 3), keepdim=True) * 2
    return maps * scale + net.side(maps)


@add_accepted()
def gradients_again(net, maps):
    with torch.no_grad():
        scale = torch.tanh(maps)
        with torch.enable_grad():
            scale = scale + torch.exp(-maps)
    return maps * scale


@add_accepted()
def chunks_without_gradients(net, maps):
    with torch.no_grad():
        first, second = torch.tanh(maps).chunk(2, 1)
    return torch.cat([first, second * 2], 1) + maps


@torch.no_grad()
def scaled(maps: Any) -> Any:
    """Return numbers without gradients."""
    return maps.abs().amax(1, keepdim=True)


@add_accepted()
def decorated(net, maps):
    return maps / (1 + scaled(maps))


@add_accepted()
def detached(net, maps):
    return net.side(maps) * maps.detach() + maps


@add_accepted()
def straight_through(net, maps):
    return maps + (maps.round() - maps).detach()


@add_accepted()
def data_read(net, maps):
    return net.side(maps) + maps.data


@add_accepted(part(lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1)))
def detached_skip(net, maps):
    side = torch.sigmoid(maps).detach()
    return net.part(torch.relu(net.side(maps))) * side


class DetachedStream(nn.Module):
    """A network in which a tensor without gradients crosses from stage to stage."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(3 if at == 0 else WIDTH, WIDTH, 3, padding=1) for at in range(7)
        )
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        maps = torch.tanh(self.convs[0](image))
        with torch.no_grad():
            scale = 1 + torch.sigmoid(maps)
        maps = torch.tanh(self.convs[1](maps) * scale)
        skip = maps
        for conv in self.convs[2:6]:
            maps = torch.tanh(conv(maps)) * scale
        maps = torch.tanh(self.convs[6](maps + skip)) * scale
        return self.head((maps + scale).mean((2, 3)))


ACCEPTED["detached_stream"] = DetachedStream


@add_rejected(r"uses stem\.weight, which gets no gradient")
def all_detached(net, maps):
    return maps.detach()


@add_rejected(
    r"uses other\.weight, which gets no gradient",
    lambda net: setattr(net, "other", nn.Conv2d(WIDTH, WIDTH, 1)),
)
def frozen_by_context(net, maps):
    with torch.no_grad():
        side = net.other(maps)
    return maps + side


@add_accepted()
def written_without_gradients(net, maps):
    with torch.no_grad():
        scale = torch.sigmoid(maps)
        scale.mul_(2).add_(maps)
        scale += 1
    return maps * scale + net.side(maps)


@add_rejected(r"writes under torch\.no_grad into a tensor that was made outside")
def clamped_without_gradients(net, maps):
    with torch.no_grad():
        maps.clamp_(-1, 1)
    return maps


@add_rejected(r"control flow")
def caught_error(net, maps):
    try:
        return maps * 2 if maps.sum() > 0 else maps
    except Exception:
        return maps


@add_accepted(lambda net: net.register_buffer("factor", torch.tensor(2.0)))
def buffer_as_number(net, maps):
    return maps * float(net.factor) + (1 if net.factor > 1 else 2)


@add_rejected(r"control flow|changes n", counter)
def counter_as_number(net, maps):
    net.n.add_(1)
    return maps * float(net.n)


@add_accepted(part(lambda: nn.BatchNorm2d(WIDTH, momentum=None)))
def norm_without_momentum(net, maps):
    return net.part(maps)


@add_rejected(r"part\.weight has no shape yet", part(lambda: nn.LazyConv2d(WIDTH, 1)), line=False)
def lazy_module(net, maps):
    return net.part(maps)


@add_rejected(r"torch\.inference_mode is on")
def inference(net, maps):
    with torch.inference_mode():
        side = torch.sigmoid(maps)
    return maps + side


@add_rejected(r"torch\.autocast is on")
def autocast(net, maps):
    with torch.autocast("cpu", torch.bfloat16):
        return net.side(maps)


@add_rejected(r"torch\.autocast is on")
def autocast_alone(net, maps):
    with torch.autocast("cpu", torch.bfloat16):
        return maps * 2


@add_accepted()
def checkpointed(net, maps):
    return checkpoint(net.side, maps, use_reentrant=False)


@add_accepted()
def checkpointed_reentrant(net, maps):
    return checkpoint(net.side, maps, use_reentrant=True)


class Negated(torch.autograd.Function):
    """The identity with a gradient of half the size and the opposite sign."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * -ctx.factor, None


@add_accepted()
def autograd_function(net, maps):
    return Negated.apply(maps, 0.5) + net.side(maps)


class Swish(torch.autograd.Function):
    """A swish that keeps its input only."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(values)
        return values * torch.sigmoid(values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (values,) = ctx.saved_tensors
        share = torch.sigmoid(values)
        return gradient * share * (1 + values * (1 - share))


@add_accepted()
def autograd_swish(net, maps):
    return Swish.apply(net.side(maps))


class Written(torch.autograd.Function):
    """A function that writes into its input."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(values)
        return values.mul_(2)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return 2 * gradient


@add_rejected(r"writes into its input")
def autograd_writes(net, maps):
    return Written.apply(maps) + maps


def frozen_norm(net: Any) -> None:
    """Let a network keep its normalisation in evaluation."""

    def train(self: Any, mode: bool = True) -> Any:
        nn.Module.train(self, mode)
        self.norm.eval()
        return self

    net.__class__ = type("FrozenNet", (Net,), {"train": train})


@add_rejected(
    r"norm \(BatchNorm2d\) is in evaluation while the network is in training", frozen_norm
)
def norm_frozen(net, maps):
    return maps


@add_rejected(r"norm \(BatchNorm2d\) is in evaluation")
def norm_frozen_in_forward(net, maps):
    net.norm.eval()
    return net.norm(maps)


def always_dropping(net: Any) -> None:
    """Let a network drop in evaluation."""
    net.part = nn.Dropout(0.5)

    def train(self: Any, mode: bool = True) -> Any:
        nn.Module.train(self, mode)
        self.part.train()
        return self

    net.__class__ = type("DroppingNet", (Net,), {"train": train})


@add_rejected(
    r"part \(Dropout\) is in training while the network is in evaluation", always_dropping
)
def drops_in_evaluation(net, maps):
    return net.part(maps)


@add_accepted(lambda net: frozen_conv(net))
def conv_in_evaluation(net, maps):
    return maps


def frozen_conv(net: Any) -> None:
    """Let a network keep a convolution in evaluation, which does the same there."""

    def train(self: Any, mode: bool = True) -> Any:
        nn.Module.train(self, mode)
        self.conv.eval()
        return self

    net.__class__ = type("FrozenConvNet", (Net,), {"train": train})


@add_accepted()
def asks_for_tensor(net, maps):
    return maps * 2 if isinstance(maps, torch.Tensor) else maps


@add_accepted()
def asks_for_list(net, maps):
    return maps[0] if isinstance(maps, list | tuple) else maps * 2


@add_accepted()
def asks_by_function(net, maps):
    return maps * 2 if torch.is_tensor(maps) else maps


@add_accepted()
def asks_by_jit(net, maps):
    return maps * 2 if torch.jit.isinstance(maps, torch.Tensor) else maps


@add_accepted()
def asks_for_int(net, maps):
    width = maps.shape[3]
    return maps * 2 if isinstance(width, int) else maps


@add_accepted()
def asks_for_parameter(net, maps):
    return maps * 2 if isinstance(net.conv.weight, nn.Parameter) else maps


@add_rejected(r"has other operators in training than in evaluation")
def asks_for_gradients(net, maps):
    return maps * 2 if torch.is_grad_enabled() else maps


@add_rejected(r"is another one in evaluation|other operators in training")
def asks_for_mode(net, maps):
    return maps * (2 if net.training else 3)


@add_rejected(r"sets requires_grad of a tensor")
def gradient_set(net, maps):
    maps.requires_grad = False
    return maps


@add_rejected(r"requires_grad_")
def gradient_required(net, maps):
    return maps.requires_grad_(False)


def by_jit() -> nn.Module:
    """Return a convolution in TorchScript."""
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.script(nn.Conv2d(WIDTH, WIDTH, 1))


def by_jit_trace() -> nn.Module:
    """Return a convolution that TorchScript has traced."""
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.trace(nn.Conv2d(WIDTH, WIDTH, 1), torch.ones(1, WIDTH, 2, 2))


@add_rejected(r"compiled", part(by_jit))
def scripted(net, maps):
    return net.part(maps)


@add_rejected(r"compiled", part(by_jit_trace))
def traced_by_jit(net, maps):
    return net.part(maps)


def by_compile() -> Any:
    """Return a convolution that torch.compile is to compile."""
    with warnings.catch_warnings(action="ignore"):
        return torch.compile(nn.Conv2d(WIDTH, WIDTH, 1))


@add_rejected(r"compiled", part(by_compile))
def compiled(net, maps):
    return net.part(maps)


@add_rejected(
    r"conv has a backward hook", lambda net: net.conv.register_full_backward_hook(lambda *_: None)
)
def backward_hook(net, maps):
    return maps


@add_rejected(
    r"the network has a forward hook", lambda net: net.register_forward_hook(lambda m, i, o: o * 2)
)
def root_hook(net, maps):
    return maps


def own_forward(net: Any) -> None:
    """Give a convolution another forward."""
    net.conv.forward = types.MethodType(
        lambda self, maps: functional.conv2d(maps, self.weight * 2, self.bias, padding=1), net.conv
    )


@add_accepted(own_forward)
def forward_of_object(net, maps):
    return maps


@add_rejected(
    r"the network has a forward of its own",
    lambda net: setattr(net, "forward", lambda image: Net.forward(net, image) * 2),
    line=False,
)
def forward_of_root(net, maps):
    return maps


# Random numbers.

for _name, _draw in {
    "rand": lambda maps: maps * torch.rand(1),
    "randn_like": lambda maps: maps + torch.randn_like(maps),
    "rand_of_shape": lambda maps: maps + torch.rand(maps.shape),
    "bernoulli": lambda maps: maps * torch.bernoulli(torch.sigmoid(maps)),
    "dropout_always": lambda maps: functional.dropout(maps, 0.5),
    "alpha_dropout": lambda maps: functional.alpha_dropout(maps, 0.5, True),
    "feature_dropout": lambda maps: functional.dropout3d(maps, 0.5, True),
    "gumbel": lambda maps: functional.gumbel_softmax(maps, dim=1),
    "multinomial": lambda maps: (
        maps * torch.multinomial(torch.softmax(maps.mean((2, 3)), 1), 1)[:, :, None, None]
    ),
    "normal_": lambda maps: maps + torch.empty_like(maps).normal_(),
    "uniform_": lambda maps: maps + maps.new_empty(maps.shape).uniform_(),
    "normal": lambda maps: torch.normal(maps, 1.0),
    "poisson": lambda maps: torch.poisson(torch.relu(maps)),
    "randperm": lambda maps: maps[:, torch.randperm(WIDTH)],
    "rrelu": lambda maps: functional.rrelu(maps, training=True),
    "python_random": lambda maps: maps * random.random(),
    "python_branch": lambda maps: maps * 2 if random.random() < 0.5 else maps,
    "numpy_random": lambda maps: maps * float(np.random.rand()),
    "own_generator": lambda maps: maps * float(np.random.default_rng().random()),
    "seeded": lambda maps: (torch.manual_seed(3), maps)[1],
}.items():
    REJECTED[f"random_{_name}"] = (
        (lambda draw=_draw: Net(lambda net, maps: draw(maps))),
        r"\.py:\d+: .*(draws random numbers|writes into|in a second call)",
    )

for _name, _make in {
    "RReLU": nn.RReLU,
    "FractionalMaxPool2d": lambda: nn.FractionalMaxPool2d(2, output_ratio=0.7),
    "AlphaDropout": lambda: nn.AlphaDropout(0.3),
    "FeatureAlphaDropout": lambda: nn.FeatureAlphaDropout(0.3),
    "Dropout1d": lambda: nn.Sequential(nn.Flatten(2), nn.Dropout1d(0.3), nn.Unflatten(2, (24, 36))),
    "ScaledGumbel": lambda: nn.Sequential(nn.Softmax(1), nn.RReLU(0.1, 0.2)),
}.items():
    REJECTED[f"module_{_name}"] = (
        (lambda make=_make: Net(lambda net, maps: net.part(maps), part(make))),
        LINE + ".*draws random numbers",
    )


@add_accepted(part(lambda: MyDropout(0.3)))
def plain_subclass_of_dropout(net, maps):
    return net.part(maps)


@add_accepted(part(lambda: ScaledDropout(0.3)))
def own_dropout(net, maps):
    return net.part(maps)


@add_accepted(part(DropWholeImages))
def images_dropped(net, maps):
    return net.side(maps) + net.part(maps)


class DropByFirst(nn.Module):
    """A module that drops an image depending on another image."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.5

    def forward(self, maps: Any) -> Any:
        if not self.training:
            return maps
        return maps * torch.empty(1).bernoulli_(self.p) / (1 - self.p)


@add_rejected(r"draws random numbers", part(DropByFirst))
def batch_dropped(net, maps):
    return net.part(maps)


@fx.wrap
def drop_path(maps: Any, p: float, training: bool) -> Any:
    """Drop whole images, as one operator."""
    if not training or p == 0:
        return maps
    kept = maps.new_empty(maps.shape[0], 1, 1, 1).bernoulli_(1 - p)
    return maps * kept.div_(1 - p)


@fx.wrap
def dropout(maps: Any, p: float, training: bool) -> Any:
    """Drop rows, under the name of another function."""
    kept = torch.rand(maps.shape[2], 1) < p
    return maps * kept if training else maps


@add_accepted()
def wrapped_drop_path(net, maps):
    return net.side(maps) + drop_path(maps, 0.4, net.training)


@add_rejected(r"draws random numbers")
def wrapped_by_name(net, maps):
    return dropout(maps, 0.4, net.training)


@fx.wrap
def relu(maps: Any) -> Any:
    """Blur, under the name of another function."""
    return functional.avg_pool2d(maps, 3, 1, 1)


@fx.wrap
def permute(maps: Any, *axes: int) -> Any:
    """Blur, under the name of another function."""
    return functional.avg_pool2d(maps, 3, 1, 1)


@fx.wrap
def flatten(maps: Any) -> Any:
    """Blur, under the name of another function."""
    return functional.avg_pool2d(maps, 3, 1, 1)


@add_accepted()
def wrapped_names(net, maps):
    return flatten(permute(relu(maps), 0, 1, 3, 2))


# Subclasses.


class MyNorm(nn.BatchNorm2d):
    """Batch normalisation under another name."""


class MyConv(nn.Conv2d):
    """A convolution with another constructor."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH, 3, padding=1)


class MyPool(nn.MaxPool2d):
    """A pool under another name."""


class ScaledConv(nn.Conv2d):
    """A convolution with its own forward pass."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


class StandardConv(nn.Conv2d):
    """A convolution with another method that its forward calls."""

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        return functional.conv2d(input, weight * 2, bias, self.stride, self.padding)


class CountingPool(nn.AvgPool2d):
    """A pool with a property where torch has an attribute."""

    @property
    def scale(self) -> float:
        return 2.0

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.scale * functional.avg_pool2d(input, 3, 1, 1)


for _make in (
    *(MyConv, lambda: MyNorm(WIDTH), lambda: MyPool(3, 1, 1)),
    *(lambda: ScaledConv(WIDTH, WIDTH, 3, padding=1), lambda: CountingPool(3, 1, 1)),
    *(lambda: StandardConv(WIDTH, WIDTH, 3, padding=1), lambda: BatchNormAct2d(WIDTH)),
):
    ACCEPTED[f"subclass_{type(_make()).__name__}"] = lambda make=_make: Net(
        lambda net, maps: net.part(maps), part(make)
    )


class ScaledNorm(nn.BatchNorm2d):
    """Batch normalisation with its own forward pass."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


ACCEPTED["subclass_with_forward"] = lambda: Net(
    lambda net, maps: net.part(maps), part(lambda: ScaledNorm(WIDTH))
)


# Positions of arguments.


@add_accepted()
def std_by_position(net, maps):
    return maps / (1 + maps.std(1, True).unsqueeze(1))


@add_accepted()
def std_keeping(net, maps):
    return maps / (1 + maps.std(1, False, True)) + torch.std(maps, 1, keepdim=True)


@add_accepted()
def var_by_position(net, maps):
    return maps + maps.var(1, True)[:, None] + torch.var(maps, 1, False, True)


@add_accepted()
def sums_by_position(net, maps):
    return maps + maps.sum(1, True) + maps.mean(1, True) - maps.amax(1, True) + maps.cumsum(1)


@add_accepted()
def mean_in_format(net, maps):
    return maps + maps.mean((2, 3), True, dtype=torch.float64).to(maps.dtype)


@add_accepted()
def folded_sum_of_tuples(net, maps):
    return maps * maps.mean((2, 3)).view(maps.shape[:2] + (1,) * (maps.ndim - 2))


@add_accepted()
def folded_sum_of_lists(net, maps):
    images = maps.shape[0]
    channels = maps.shape[1]
    return maps * maps.mean((2, 3)).view([images, channels] + [1] * (maps.ndim - 2))
