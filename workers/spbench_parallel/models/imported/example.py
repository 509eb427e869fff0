"""An example of a user's network: a U-Net that does not depend on spbench.

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
        width: Channels at full size; each level down doubles them.
        levels: How often the image is halved.
        classes: The number of classes.
        segments: Whether it classifies each pixel instead of the image.
    """

    def __init__(
        self, width: int = 16, levels: int = 3, classes: int = 10, segments: bool = False
    ) -> None:
        super().__init__()
        channels_by_level = [width << level for level in range(levels + 1)]
        down = zip([3, *channels_by_level], channels_by_level[:-1], strict=False)
        self.down = nn.ModuleList(_two_convolutions(inputs, outputs) for inputs, outputs in down)
        self.lowest = _two_convolutions(channels_by_level[-2], channels_by_level[-1])
        up = zip(channels_by_level[:0:-1], channels_by_level[-2::-1], strict=True)
        self.up = nn.ModuleList(_two_convolutions(lower + size, size) for lower, size in up)
        self.classify = nn.Conv2d(width, classes, 1) if segments else nn.Linear(width, classes)
        self._segments = segments

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return logits, ``batch x classes``, with rows and columns if it segments."""
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


def _two_convolutions(inputs: int, outputs: int) -> nn.Sequential:
    def make_convolution(inputs: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    return nn.Sequential(*make_convolution(inputs), *make_convolution(outputs))
