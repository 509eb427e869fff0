"""VGG-19 as a row of layers, for `spbench profile docs.examples.vgg19:vgg19`.

Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014,
configuration E: 16 convolutions of 3x3 with a ReLU each, five poolings, three linear layers. It has
no dropout, because a profile must be the same in each pass.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

STACKS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
"""Filters and convolutions of the stacks; a pooling ends each."""
IMAGE = (3, 224, 224)
CLASSES = 1000


def vgg19() -> tuple[nn.Sequential, torch.Tensor]:
    """Return the network and a batch of one image."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    channels = IMAGE[0]
    for stack, (filters, convolutions) in enumerate(STACKS, 1):
        for number in range(1, convolutions + 1):
            layers[f"conv{stack}_{number}"] = _add_relu(nn.Conv2d(channels, filters, 3, padding=1))
            channels = filters
        layers[f"pool{stack}"] = nn.MaxPool2d(2)
    side = IMAGE[1] >> len(STACKS)
    layers["fc6"] = nn.Sequential(nn.Flatten(), _add_relu(nn.Linear(channels * side**2, 4096)))
    layers["fc7"] = _add_relu(nn.Linear(4096, 4096))
    layers["fc8"] = nn.Linear(4096, CLASSES)
    return nn.Sequential(layers), torch.randn(1, *IMAGE)


def _add_relu(operator: nn.Module) -> nn.Sequential:
    return nn.Sequential(operator, nn.ReLU())
