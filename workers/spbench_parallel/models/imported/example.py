"""An example of a network of one's own: a U-Net, which knows nothing of spbench.

Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015, with
padded convolutions and batch normalisation.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class UNet(nn.Module):
    """The network.

    Args:
        width: Channels at full size; each level down has twice as many.
        levels: How often the image is halved.
        classes: The number of classes.
        segments: Whether it tells the class of each pixel, not of the image.
    """

    def __init__(
        self, width: int = 16, levels: int = 3, classes: int = 10, segments: bool = False
    ) -> None:
        super().__init__()
        sizes = [width << level for level in range(levels + 1)]
        down = zip([3, *sizes], sizes[:-1], strict=False)
        self.down = nn.ModuleList(_two_convolutions(given, made) for given, made in down)
        self.lowest = _two_convolutions(sizes[-2], sizes[-1])
        up = zip(sizes[:0:-1], sizes[-2::-1], strict=True)
        self.up = nn.ModuleList(_two_convolutions(below + size, size) for below, size in up)
        self.classify = nn.Conv2d(width, classes, 1) if segments else nn.Linear(width, classes)
        self._segments = segments

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return logits, ``batch x classes``, or those of each pixel, with rows and columns."""
        maps = image
        skips = []
        for level in self.down:
            maps = level(maps)
            skips.append(maps)
            maps = functional.max_pool2d(maps, 2)
        maps = self.lowest(maps)
        for level in self.up:
            maps = functional.interpolate(maps, scale_factor=2)
            maps = level(torch.cat([skips.pop(), maps], dim=1))
        logits: torch.Tensor = self.classify(maps if self._segments else maps.mean((2, 3)))
        return logits


def _two_convolutions(given: int, made: int) -> nn.Sequential:
    def one(given: int) -> list[nn.Module]:
        conv = nn.Conv2d(given, made, 3, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(made), nn.ReLU(inplace=True)]

    return nn.Sequential(*one(given), *one(made))
