"""Networks whose weights, names, hooks or statistics are used in more ways than one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import nn
from torch.nn import functional

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
        made = torch.relu(self.bn(self.c(image)))
        return torch.relu(self.e(torch.relu(self.d(made))))

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
        self.norm, self.conv, self.block = block[1], block[0], block
        self.d, self.head = nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        made = self.d(torch.relu(self.norm(self.conv(image))))
        return self.head(made.mean((2, 3)))


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
        self.bn.bias = self.e.bias = self.d.bias


class TiedNorms(nn.Module):
    """Normalisations of several kinds with the same weight."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.a, self.b = nn.BatchNorm2d(WIDTH), nn.BatchNorm2d(WIDTH)
        self.groups = nn.GroupNorm(2, WIDTH)
        self.b.weight = self.groups.weight = self.a.weight
        self.d, self.head = nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        made = self.b(torch.relu(self.d(self.a(self.c(image)))))
        return self.head(self.groups(made).square().mean((2, 3)))


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
        made = self.features(image)
        made = torch.relu(functional.conv2d(made, self.e.weight, padding=1))
        return self.head(made.mean((2, 3)))


class TiedFunctionOfOther(Plain):
    """A weight that a function uses by the name of one module, and another module has too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.e.weight = self.first.weight

    def forward(self, image: Any) -> Any:
        made = self.features(image) * self.first.weight.mean()
        return self.head(made.mean((2, 3)))


class TiedHeads(nn.Module):
    """Two convolutions of one pixel over tiles, a mean, and the same weight behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.a, self.b = nn.Conv2d(WIDTH, WIDTH, 1), nn.Conv2d(WIDTH, WIDTH, 1)
        self.b.weight = self.a.weight
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        made = torch.relu(self.a(torch.relu(self.c(image))))
        return self.head(self.b(made.mean((2, 3), keepdim=True)).flatten(1))


class TiedChannelsLast(nn.Module):
    """Linear layers of each pixel with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.b.weight = self.a.weight
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image: Any) -> Any:
        made = torch.relu(self.a(self.c(image).permute(0, 2, 3, 1)))
        made = torch.relu(self.b(made)).permute(0, 3, 1, 2)
        return self.head(made.mean((2, 3)))


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
