"""VGG-19 as a row of layers, for `spbench profile`: Simonyan and Zisserman, 2014, table 1, E.

Without dropout: a profile is checked, layer by layer, against the network in one piece.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

STACKS = ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4)
"""Filters of each convolution; a pool ends each stack."""
UNITS = 4096


def model(image_size: int = 224, num_classes: int = 1000) -> tuple[nn.Sequential, torch.Tensor]:
    """Return the network and one image: 16 convolutions and 3 fully connected layers."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    channels = 3
    for stack, sizes in enumerate(STACKS, 1):
        for number, filters in enumerate(sizes, 1):
            row: list[nn.Module] = [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU()]
            row += [nn.MaxPool2d(2)] if number == len(sizes) else []
            layers[f"conv{stack}_{number}"] = nn.Sequential(*row)
            channels = filters
    side = image_size // 2 ** len(STACKS)
    flat = nn.Linear(channels * side * side, UNITS)
    layers["fc6"] = nn.Sequential(nn.Flatten(), flat, nn.ReLU())
    layers["fc7"] = nn.Sequential(nn.Linear(UNITS, UNITS), nn.ReLU())
    layers["fc8"] = nn.Linear(UNITS, num_classes)
    return nn.Sequential(layers), torch.randn(1, 3, image_size, image_size)
