"""Networks that are rejected, each for a different reason."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Rows(nn.Module):
    """A network of sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, rows: Any) -> Any:
        return self.head(self.conv(rows).mean(-1))


class Volumes(nn.Module):
    """A network of volumes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4))
        self.head = nn.Linear(4, 5)

    def forward(self, volumes: Any) -> Any:
        return self.head(self.stem(volumes).mean((2, 3, 4)))


class Channels(nn.Module):
    """A network for images of some channels."""

    def __init__(self, channels: int, in_function: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)
        self.in_function = in_function

    def forward(self, image: Any) -> Any:
        if self.in_function:
            image = functional.conv2d(image, self.conv.weight, padding=1)
        else:
            image = self.conv(image)
        return self.head(image.mean((2, 3)))


class FixedImageSize(nn.Module):
    """A network for images of 64x64."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 8, 8)
        self.head = nn.Linear(4 * 64, 5)

    def forward(self, image: Any) -> Any:
        return self.head(self.conv(image).flatten(1))


class WrongHeadSize(nn.Module):
    """A network that can take no images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(7, 5)

    def forward(self, image: Any) -> Any:
        return self.head(self.conv(image).mean((2, 3)))


class Optional(nn.Module):
    """A network with arguments that have defaults."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(
        self, image: Any, mask: Any = None, scale: float = 2.0, deep: bool = False, **options: Any
    ) -> Any:
        maps = self.conv(image) * scale
        if mask is not None:
            maps = maps * mask
        if deep:
            maps = maps + 1
        return self.head(maps.mean((2, 3)))


class MaskNetwork(Optional):
    """A network that needs a mask."""

    def forward(self, image: Any, mask: Any) -> Any:  # type: ignore[override]
        return self.head((self.conv(image) * mask).mean((2, 3)))


class ModeDependent(nn.Module):
    """A network that keeps something in evaluation, and no auxiliary output."""

    def __init__(self, variant: str = "cache") -> None:
        super().__init__()
        self.variant = variant
        self.bias = nn.Parameter(torch.ones(4))
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)
        self.other = nn.Linear(4, 5)
        self.cache = dict[str, Any]()

    def _bias(self) -> Any:
        if self.training:
            return self.bias * 1.0
        if "bias" not in self.cache:
            self.cache["bias"] = self.bias
        return self.cache["bias"]

    def forward(self, image: Any) -> Any:
        maps = self.conv(image).mean((2, 3))
        if self.variant == "cache":
            return self.head(maps + self._bias())
        if not self.training:
            return (self.head(maps) + self.other(maps)) / 2
        return self.head(maps), self.other(maps)


class Strips(nn.Module):
    """A network with maps of one column."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.across = nn.Conv2d(4, 4, (3, 1), padding=(1, 0))
        self.head = nn.Linear(4, 5)

    def forward(self, image: Any) -> Any:
        maps = self.conv(image)
        maps = maps * torch.sigmoid(self.across(maps.mean(3, keepdim=True)))
        return self.head(maps.mean((2, 3)))


class LibraryEncoder(nn.Module):
    """A custom network around one of a library."""

    def __init__(self, inner: str) -> None:
        super().__init__()
        self.encoder = getattr(importlib.import_module("library_of_networks"), inner)()
        self.head = nn.Linear(4, 5)

    def forward(self, image: Any) -> Any:
        maps = self.encoder(image)
        return self.head(maps.mean((2, 3)))


def fail_to_import() -> nn.Module:
    """Fail like a library with an import that fails."""
    try:
        raise RuntimeError("operator torchvision::nms does not exist")
    except RuntimeError as error:
        raise ModuleNotFoundError(
            "Could not import module 'ResNetForImageClassification'. Are this object's "
            "requirements defined correctly?"
        ) from error


def fail_while_handling() -> nn.Module:
    """Fail while another error is handled."""
    try:
        raise ImportError("libcudart.so.12: cannot open shared object file")
    except ImportError:
        raise RuntimeError("the backend is not there\nsee the log")  # noqa: B904


class ReplacedForward(LibraryEncoder):
    """A network that replaces the forward pass of a library's block."""

    def __init__(self, inner: str) -> None:
        super().__init__(inner)
        vars(self.encoder[1])["forward"] = _clamp


def _clamp(maps: Any) -> Any:
    return maps.clamp(max=10)
