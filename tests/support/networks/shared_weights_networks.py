"""Networks with shared weights, several names of a module, and hooks."""

from __future__ import annotations

import types
import warnings
from collections import OrderedDict
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune

WIDTH = 4
CLASSES = 5


class Plain(nn.Module):
    """Two convolutions, a normalisation and a linear layer, which others change."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.bn = nn.BatchNorm2d(WIDTH)
        self.d = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.e = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.head = nn.Linear(WIDTH, CLASSES)

    def features(self, image: Any) -> Any:
        maps = torch.relu(self.bn(self.c(image)))
        return torch.relu(self.e(torch.relu(self.d(maps))))

    def forward(self, image: Any) -> Any:
        return self.head(self.features(image).mean((2, 3)))


# Tensors of two names.


class TwoNames(Plain):
    """Modules that are registered twice, as MONAI and nnU-Net do."""

    def __init__(self) -> None:
        super().__init__()
        self.skip = nn.ModuleDict({"a": self.c, "b": self.bn})
        self.all_modules = nn.ModuleList([self.bn, self.head])


class TwoNamesFirst(nn.Module):
    """A list of modules that comes before their names, and modules in a module."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.Sequential(nn.Conv2d(3, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH), nn.ReLU())
        self.blocks = nn.ModuleList([block])
        self.norm = block[1]
        self.conv = block[0]
        self.block = block
        self.d = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        maps = self.d(torch.relu(self.norm(self.conv(image))))
        return self.head(maps.mean((2, 3)))


class NotSaved(Plain):
    """A buffer that the state_dict has not, and one of two names."""

    table: torch.Tensor
    again: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.linspace(0.5, 1.5, WIDTH)[:, None, None], False)
        self.register_buffer("again", torch.ones(WIDTH, 1, 1))
        self.register_buffer("other", self.again)

    def forward(self, image: Any) -> Any:
        return self.head((self.features(image) * self.table * self.again).mean((2, 3)))


class Renamed(Plain):
    """A hook that gives entries of the state_dict other names."""

    def __init__(self) -> None:
        super().__init__()
        self.register_state_dict_post_hook(self._rename)

    @staticmethod
    def _rename(module: Any, state: Any, prefix: str, metadata: Any) -> None:
        for name in list(state):
            state[f"net.{name}"] = state.pop(name)


class Halved(Plain):
    """A hook that changes the values of a state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.register_state_dict_post_hook(self._halve)

    @staticmethod
    def _halve(module: Any, state: Any, prefix: str, metadata: Any) -> None:
        for name in list(state):
            state[name] = state[name].detach() / 2


class Extra(Plain):
    """A state_dict with more than tensors."""

    def get_extra_state(self) -> Any:
        return {"steps": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


# Tied weights.


class TiedConvs(Plain):
    """A convolution with the weight of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.e.weight = self.d.weight


class TiedBiases(Plain):
    """A bias of a convolution, of a normalisation and of another convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.bn.register_parameter("bias", self.d.bias)
        self.e.bias = self.d.bias


class TiedNorms(nn.Module):
    """Normalisations of several kinds with the same weight."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.a = nn.BatchNorm2d(WIDTH)
        self.b = nn.BatchNorm2d(WIDTH)
        self.groups = nn.GroupNorm(2, WIDTH)
        self.b.weight = self.groups.weight = self.a.weight
        self.d = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        maps = self.b(torch.relu(self.d(self.a(self.c(image)))))
        return self.head(self.groups(maps).square().mean((2, 3)))


class TiedUnused(Plain):
    """The weight of a module that the forward pass never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.a_first = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.e.weight = self.a_first.weight
        self._modules = OrderedDict(reversed(list(self._modules.items())))


class TiedFunction(Plain):
    """A weight of a module that a function uses too."""

    def forward(self, image: Any) -> Any:
        maps = self.features(image)
        maps = torch.relu(functional.conv2d(maps, self.e.weight, padding=1))
        return self.head(maps.mean((2, 3)))


class TiedFunctionOfOther(Plain):
    """A weight of two modules, which a function uses too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.e.weight = self.first.weight

    def forward(self, image: Any) -> Any:
        maps = self.features(image) * self.first.weight.mean()
        return self.head(maps.mean((2, 3)))


class TiedHeads(nn.Module):
    """Two convolutions of one pixel over tiles, a mean, and the same weight behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.a = nn.Conv2d(WIDTH, WIDTH, 1)
        self.b = nn.Conv2d(WIDTH, WIDTH, 1)
        self.b.weight = self.a.weight
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        maps = torch.relu(self.a(torch.relu(self.c(image))))
        return self.head(self.b(maps.mean((2, 3), keepdim=True)).flatten(1))


class TiedChannelsLast(nn.Module):
    """Linear layers of each pixel with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.a = nn.Linear(WIDTH, WIDTH)
        self.b = nn.Linear(WIDTH, WIDTH)
        self.b.weight = self.a.weight
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        maps = torch.relu(self.a(self.c(image).permute(0, 2, 3, 1)))
        maps = torch.relu(self.b(maps)).permute(0, 3, 1, 2)
        return self.head(maps.mean((2, 3)))


class UsedTwice(Plain):
    """A convolution that is used twice."""

    def forward(self, image: Any) -> Any:
        return self.head(torch.relu(self.d(self.features(image))).mean((2, 3)))


class OneMemory(Plain):
    """Two parameters in one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.e.weight = nn.Parameter(self.d.weight.detach().transpose(0, 1))


class OneMemoryBuffer(Plain):
    """A buffer in the memory of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", self.d.weight.detach()[0])


class OneStatistics(Plain):
    """Two normalisations with the same running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.BatchNorm2d(WIDTH)
        self.again.running_mean = self.bn.running_mean

    def forward(self, image: Any) -> Any:
        return self.head(self.again(self.features(image)).square().mean((2, 3)))


# Hooks.


def double(module: nn.Module, inputs: Any, output: Any) -> Any:
    """Double an output."""
    return output * 2


def halve_input(module: nn.Module, inputs: Any) -> Any:
    """Halve an input."""
    return inputs[0] * 0.5


def watch(*arguments: Any) -> None:
    """Read the arguments of a hook."""


class Hooked(Plain):
    """Forward hooks of several kinds on modules and a container."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((1,), 1.5))
        self.block = nn.Sequential(self.d, nn.ReLU())
        self.c.register_forward_hook(double)
        self.c.register_forward_pre_hook(halve_input)
        self.bn.register_forward_hook(self._scaled)
        self.block.register_forward_hook(double)
        self.block.register_forward_pre_hook(self._shifted, with_kwargs=True)
        self.e.register_forward_hook(watch)
        self.head.register_forward_hook(double, always_call=True)

    def _scaled(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        return output * self.scale + inputs[0]

    @staticmethod
    def _shifted(module: nn.Module, inputs: Any, options: Any) -> Any:
        return (inputs[0] + 0.25,), options

    def forward(self, image: Any) -> Any:
        maps = self.block(torch.relu(self.bn(self.c(image))))
        return self.head(torch.relu(self.e(maps)).mean((2, 3)))


class HookedTwice(Plain):
    """A hook on a convolution. Another hook reads its result."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.c.register_forward_hook(lambda module, inputs, output: self.seen.append(output))
        self.e.register_forward_hook(lambda module, inputs, output: output + self.seen.pop())


def convolve_twice(conv: nn.Conv2d, maps: Any) -> Any:
    """Double the result of a convolution."""
    return 2 * nn.Conv2d.forward(conv, maps)


class Patched(Plain):
    """A convolution with its own forward pass."""

    def __init__(self) -> None:
        super().__init__()
        vars(self.d)["forward"] = types.MethodType(convolve_twice, self.d)


class PatchedWhole(Plain):
    """A network with its own forward pass."""

    def __init__(self) -> None:
        super().__init__()
        vars(self)["forward"] = self.twice

    def twice(self, image: Any) -> Any:
        return 2 * Plain.forward(self, image)


class Lost(Plain):
    """A hook that copies of modules do not have."""

    def __init__(self, on: str) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 1, 8, dropout=0.0, batch_first=True)
        if on == "backward":
            self.d.register_full_backward_hook(watch)
        elif on == "backward of a block":
            self.block = nn.Sequential(nn.ReLU())
            self.block.register_full_backward_pre_hook(watch)
        elif on == "parameter":
            self.d.weight.register_hook(lambda gradient: gradient * 0.5)
        elif on == "accumulated":
            self.d.weight.register_post_accumulate_grad_hook(watch)
        elif on == "whole":
            self.register_forward_hook(double)
        elif on == "within":
            self.layer.linear1.register_forward_hook(double)
        elif on == "weights too":
            prune.identity(self.d, "weight")
            self.d.register_forward_hook(double)
        elif on == "closure":
            other = self.e
            self.c.register_forward_hook(lambda module, inputs, output: other(output))
        elif on == "forward in a closure":
            plain = self.c.forward
            vars(self.c)["forward"] = lambda maps: 2 * plain(maps)
        elif on == "lazy":
            self.c = nn.LazyConv2d(WIDTH, 3, padding=1)


# Images of a batch that are mixed, or seem to be.


class Mixed(Plain):
    """A network that reads other images of the batch, or does not."""

    count: torch.Tensor
    mean: torch.Tensor
    var: torch.Tensor

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.variant = variant
        self.gamma = nn.Parameter(torch.zeros(1))
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("var", torch.ones(WIDTH))
        self.attention = nn.MultiheadAttention(WIDTH, 2)
        self.first = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.lstm = nn.LSTM(WIDTH, WIDTH)
        self.each = nn.InstanceNorm2d(WIDTH, affine=True, track_running_stats=True)
        self.last = nn.BatchNorm1d(WIDTH)

    def forward(self, image: Any) -> Any:
        maps = getattr(self, f"_{self.variant}")(self.features(image))
        return self.head(maps.mean((2, 3)))

    # These mix.

    def _function(self, maps: Any) -> Any:
        return functional.batch_norm(maps, self.mean, self.var, training=self.training)

    def _centred(self, maps: Any) -> Any:
        return maps - maps.mean((0, 2, 3), keepdim=True)

    def _mean(self, maps: Any) -> Any:
        return maps - maps.mean(0)

    def _std(self, maps: Any) -> Any:
        return maps / (1 + maps.flatten(2).std(0).unsqueeze(-1).mean(1, keepdim=True))

    def _var(self, maps: Any) -> Any:
        var, mean = torch.var_mean(maps, dim=(0, 2, 3), keepdim=True)
        return (maps - mean) / (var + 1).sqrt()

    def _hidden(self, maps: Any) -> Any:
        return maps + self.gamma * maps.roll(1, 0)

    def _cumsum(self, maps: Any) -> Any:
        return maps.cumsum(0)

    def _flip(self, maps: Any) -> Any:
        return maps + maps.flip(0)

    def _sort(self, maps: Any) -> Any:
        return maps + maps.sort(0)[0]

    def _first_image(self, maps: Any) -> Any:
        return maps - maps[:1]

    def _index(self, maps: Any) -> Any:
        return maps + maps[torch.zeros(1, dtype=torch.long)]

    def _softmax(self, maps: Any) -> Any:
        return maps * maps.softmax(0)

    def _alike(self, maps: Any) -> Any:
        rows = maps.mean((2, 3))
        return maps + (torch.softmax(rows @ rows.t(), -1) @ rows)[:, :, None, None]

    def _maximum(self, maps: Any) -> Any:
        return maps / maps.max()

    def _counted(self, maps: Any) -> Any:
        return maps / maps.shape[0]

    def _attention_of_images(self, maps: Any) -> Any:
        rows = maps.flatten(2).transpose(1, 2)
        mixed, _ = self.attention(rows, rows, rows)
        return maps + mixed.transpose(1, 2).reshape(maps.shape)

    def _lstm_of_images(self, maps: Any) -> Any:
        rows, _ = self.lstm(maps.mean((2, 3))[:, None])
        return maps + rows.transpose(1, 2)[..., None]

    def _view(self, maps: Any) -> Any:
        return maps.reshape(1, -1, maps.shape[2], maps.shape[3]).softmax(1).reshape(maps.shape)

    def _quantile(self, maps: Any) -> Any:
        return maps.clamp(max=maps.flatten().median())

    def _clipped(self, maps: Any) -> Any:
        return maps / (1 + torch.linalg.vector_norm(maps))

    # These do not, but move statistics that are the mean over images.

    def _each(self, maps: Any) -> Any:
        return self.each(maps)

    def _last(self, maps: Any) -> Any:
        return maps * self.last(maps.mean((2, 3)))[:, :, None, None]

    # These do not.

    def _nothing(self, maps: Any) -> Any:
        return maps

    def _groups(self, maps: Any) -> Any:
        parts = maps.reshape(-1, 2, maps.shape[2], maps.shape[3])
        return (parts - parts.mean((2, 3), keepdim=True)).reshape(maps.shape)

    def _windows(self, maps: Any) -> Any:
        images, channels, rows, cols = maps.shape
        parts = maps.reshape(images, channels, 2, rows // 2, 2, cols // 2)
        parts = parts.permute(0, 2, 4, 3, 5, 1).reshape(images * 4, -1, channels)
        parts = torch.softmax(parts @ parts.transpose(1, 2), -1) @ parts
        parts = parts.reshape(images, 2, 2, rows // 2, cols // 2, channels)
        return maps + parts.permute(0, 5, 1, 3, 2, 4).reshape(maps.shape)

    def _attention_of_pixels(self, maps: Any) -> Any:
        rows = maps.flatten(2).permute(2, 0, 1)
        mixed, _ = self.attention(rows, rows, rows)
        return maps + mixed.permute(1, 2, 0).reshape(maps.shape)

    def _attention_batch_first(self, maps: Any) -> Any:
        rows = maps.flatten(2).transpose(1, 2)
        mixed, _ = self.first(rows, rows, rows)
        return maps + mixed.transpose(1, 2).reshape(maps.shape)

    def _lstm_of_rows(self, maps: Any) -> Any:
        rows, _ = self.lstm(maps.mean(3).permute(2, 0, 1))
        return maps + rows.permute(1, 2, 0)[..., None]

    def _dynamic(self, maps: Any) -> Any:
        images, channels, rows, cols = maps.shape
        kernels = maps.mean((2, 3)).reshape(images * channels, 1, 1, 1)
        joined = functional.conv2d(
            maps.reshape(1, images * channels, rows, cols), kernels, groups=images * channels
        )
        return joined.reshape(maps.shape)

    def _roll(self, maps: Any) -> Any:
        return maps + maps.roll((1, 1), (2, 3)) + maps.flip(-1)

    def _top(self, maps: Any) -> Any:
        return maps * (maps >= maps.flatten(2).topk(3, -1)[0][..., -1:, None]).float()


# Weights that are computed before each call.


class Twice(nn.Module):
    """A parametrization: twice the weight."""

    def forward(self, weight: Any) -> Any:
        return 2 * weight


class Computed(Plain):
    """A module with a weight that another parameter determines."""

    def __init__(self, variant: str, part: str) -> None:
        super().__init__()
        module = self.get_submodule(part)
        if variant == "weight_norm":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nn.utils.weight_norm(module)
        elif variant == "spectral_norm":
            nn.utils.spectral_norm(module)
        elif variant == "pruned":
            prune.l1_unstructured(module, "weight", amount=0.3)
        elif variant == "parametrize":
            parametrize.register_parametrization(module, "weight", Twice())
        else:
            getattr(parametrizations, variant.removeprefix("new_"))(module)


# Sizes of images, which are known before.


class Asks(Plain):
    """A network that asks for sizes or for values."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.variant = variant

    def forward(self, image: Any) -> Any:
        maps = getattr(self, f"_{self.variant}")(self.features(image))
        return self.head(maps.mean((2, 3)))

    def _remainder(self, maps: Any) -> Any:
        if maps.shape[3] % 8 != 0:
            maps = functional.pad(maps, (0, 8 - maps.shape[3] % 8))
        return maps.square()

    def _integer(self, maps: Any) -> Any:
        size = int(maps.shape[2] / 2), maps.size(3) // 3
        return functional.interpolate(maps, size=size, mode="bilinear").square()

    def _length(self, maps: Any) -> Any:
        return maps.square() if len(maps.shape) == maps.ndim == maps.dim() == 4 else maps

    def _loop(self, maps: Any) -> Any:
        rows = [maps[:, :, row : row + 1] * (1 + row) for row in range(maps.shape[2])]
        return torch.cat(rows, 2)

    def _unpacked(self, maps: Any) -> Any:
        images, channels, *sides = maps.shape
        parts = maps.reshape(images, 2, channels // 2, *sides)
        return parts.transpose(1, 2).reshape(-1, channels, *maps.shape[2:]).square()

    def _coordinates(self, maps: Any) -> Any:
        rows = torch.linspace(-1, 1, maps.shape[2])[:, None]
        cols = torch.arange(maps.shape[3]) / maps.shape[3]
        return maps * rows + maps * cols

    def _same_shape(self, maps: Any) -> Any:
        other = torch.tanh(maps)
        return maps + other if maps.shape == other.shape else maps

    def _expanded(self, maps: Any) -> Any:
        ones = torch.ones(1, WIDTH, 1, 1).expand(maps.shape)
        return maps.square() + ones.to(maps.dtype) + torch.zeros(list(maps.shape))

    def _scaled(self, maps: Any) -> Any:
        images, _, rows, cols = maps.size()
        return (maps.flatten(2).sum(-1) / (rows * cols)).view(images, -1, 1, 1) * maps

    # These are not known.

    def _value(self, maps: Any) -> Any:
        return maps if maps.mean() > 0 else -maps

    def _number(self, maps: Any) -> Any:
        return maps * float(maps.max())

    def _count(self, maps: Any) -> Any:
        return maps if maps.shape[0] > 1 else -maps


# More of the same kinds.


class Lists(Plain):
    """One parameter in a list, twice, and in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        scale = nn.Parameter(torch.full((WIDTH, 1, 1), 1.2))
        self.list = nn.ParameterList([scale, scale])
        self.dict = nn.ParameterDict({"a": scale})

    def forward(self, image: Any) -> Any:
        return self.head((self.features(image) * self.list[0] + self.dict["a"]).mean((2, 3)))


class TiedFlat(Plain):
    """The weight of a convolution of one pixel, behind the mean as a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(WIDTH, WIDTH, 1, bias=False)

    def forward(self, image: Any) -> Any:
        maps = self.one(self.features(image)).mean((2, 3))
        return self.head(functional.linear(maps, self.one.weight.flatten(1).t()))


class TiedKinds(Plain):
    """One weight of convolutions of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(WIDTH, WIDTH, 3, padding=1)
        self.mirrored = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, padding_mode="reflect")
        self.up.weight = self.mirrored.weight = self.d.weight
        self.mirrored.bias = self.e.bias

    def forward(self, image: Any) -> Any:
        return self.head(self.mirrored(torch.relu(self.up(self.features(image)))).mean((2, 3)))


class TiedGathered(Plain):
    """One weight of linear layers, of each pixel and of gathered ones."""

    def __init__(self) -> None:
        super().__init__()
        self.pixels = nn.Linear(WIDTH, WIDTH)
        self.rows = nn.Linear(WIDTH, WIDTH)
        self.rows.weight = self.pixels.weight

    def forward(self, image: Any) -> Any:
        maps = self.pixels(self.features(image).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        rows = torch.relu(maps).flatten(2).transpose(1, 2).roll(1, 1)
        return self.head(self.rows(rows).square().mean(1))


class Removed(Plain):
    """Hooks that are there no more."""

    def __init__(self) -> None:
        super().__init__()
        self.c.register_forward_hook(double).remove()
        self.d.weight.register_hook(watch).remove()
        self.d.register_full_backward_hook(watch).remove()


class SharedBlock(nn.Module):
    """A block that is used twice, with its normalisation."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH))
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.blocks = nn.Sequential(block, block)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        return self.head(self.blocks(self.stem(image)).square().mean((2, 3)))


def parallel() -> nn.Module:
    """Return a network within torch's data parallelism."""
    return nn.DataParallel(Plain())
