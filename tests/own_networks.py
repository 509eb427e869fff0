"""Networks as a user might have them, which know nothing of spbench."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A residual block that writes into its own maps."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(given, made, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(made)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(made, made, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(made)
        self.short = nn.Conv2d(given, made, 1) if given != made else nn.Identity()

    def forward(self, maps: Any) -> Any:
        made = self.relu(self.bn1(self.conv1(maps)))
        made = self.bn2(self.conv2(made))
        made += self.short(maps)
        return self.relu(made)


class UNet(nn.Module):
    """A U-Net that classifies: its skips reach from the first stages to the last ones."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.down1, self.down2 = Block(3, width), Block(width, 2 * width)
        self.middle = Block(2 * width, 4 * width)
        self.up2, self.up1 = Block(6 * width, 2 * width), Block(3 * width, width)
        self.scale = nn.Parameter(torch.full((1,), 1.5))
        self.head = nn.Linear(width, classes)

    def forward(self, image: Any) -> Any:
        first = self.down1(image)
        second = self.down2(functional.max_pool2d(first, 2))
        lowest = self.middle(functional.max_pool2d(second, 2))
        made = self.up2(torch.cat([second, functional.interpolate(lowest, scale_factor=2)], 1))
        made = self.up1(torch.cat([first, functional.interpolate(made, scale_factor=2)], 1))
        pooled = functional.adaptive_avg_pool2d(made * self.scale, 1)
        return {"out": self.head(torch.flatten(pooled, 1)), "aux": pooled}


class Segmenter(nn.Module):
    """A U-Net of one level that tells the class of each pixel."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.down, self.middle = Block(3, width), Block(width, 2 * width)
        self.up, self.head = Block(3 * width, width), nn.Conv2d(width, classes, 1)

    def forward(self, image: Any) -> Any:
        first = self.down(image)
        lowest = self.middle(functional.max_pool2d(first, 2))
        both = torch.cat([first, functional.interpolate(lowest, scale_factor=2)], 1)
        return self.head(self.up(both))


class DropPath(nn.Module):
    """Stochastic depth, as libraries of networks have it."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob, self.mode = drop_prob, "row"

    def forward(self, maps: Any) -> Any:
        if not self.training:
            return maps
        keep = 1.0 - self.drop_prob
        kept = maps.new_empty((maps.shape[0],) + (1,) * (maps.ndim - 1)).bernoulli_(keep)
        return maps * kept.div_(keep)


class Chance(nn.Module):
    """A network that drops values, channels and whole images, in modules and in functions."""

    def __init__(self, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.stem, self.drop = nn.Conv2d(3, width, 3, padding=1), nn.Dropout(0.3, inplace=True)
        self.norm, self.path = nn.BatchNorm2d(width), DropPath(0.4)
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.inner, self.head = nn.Linear(width, 7), nn.Linear(7, classes)

    def forward(self, image: Any) -> Any:
        made = self.drop(torch.relu(self.stem(image)))
        made = made + self.path(functional.dropout2d(self.conv1(made), 0.5, self.training))
        made = self.norm(self.drop(self.conv2(made)))
        made = torch.relu(self.inner(torch.dropout(made.mean((2, 3)), 0.2, self.training)))
        return self.head(self.drop(made))


class Dense(nn.Module):
    """Layers that each read all before them, with channels that are squeezed and excited."""

    def __init__(self, growth: int = 4, layers: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, growth, 3, stride=2, padding=1)
        self.convs = nn.ModuleList(
            nn.Conv2d(growth * (at + 1), growth, 3, padding=1) for at in range(layers)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(2, growth) for _ in range(layers))
        self.excites = nn.ModuleList(nn.Conv2d(growth, growth, 1) for _ in range(layers))
        self.drop = nn.Dropout(0.0)
        self.head = nn.Linear(growth * (layers + 1), classes)

    def forward(self, image: Any) -> Any:
        maps = [self.stem(image)]
        for conv, norm, excite in zip(self.convs, self.norms, self.excites, strict=True):
            made = functional.silu(norm(conv(torch.cat(maps, 1))))
            share = torch.sigmoid(excite(made.mean((2, 3), keepdim=True)))
            maps.append(made * share)
        return self.head(self.drop(torch.cat(maps, 1).mean((2, 3))))


class Many(nn.Module):
    """A network of many kinds of operators, those that have counterparts over tiles and others."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, stride=2, padding=2)
        self.grouped = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4, bias=False)
        self.norm = nn.BatchNorm2d(8, eps=1e-3, momentum=0.2)
        self.groups, self.each = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True)
        self.layer = nn.LayerNorm(8)
        self.mirrored = nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")
        self.larger = nn.ConvTranspose2d(8, 16, 2, stride=2)
        self.shuffle, self.narrow = nn.PixelShuffle(2), nn.Conv2d(4, 8, (1, 3), padding=(0, 1))
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.share = nn.Parameter(torch.full((8, 1, 1), 0.5))
        self.columns = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(8, classes)

    def forward(self, image: Any) -> Any:
        made = functional.hardswish(self.norm(self.grouped(self.stem(image))))
        made = functional.max_pool2d(made, 3, stride=1, padding=1) + self.groups(made)
        made = functional.avg_pool2d(
            self.each(made), 3, stride=1, padding=1, count_include_pad=False
        )
        made = self.layer(made.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        skip = made * self.share
        made = self.narrow(self.shuffle(self.larger(self.mirrored(made))))
        made = functional.interpolate(made, size=skip.shape[-2:], mode="bilinear") + skip
        pooled = functional.adaptive_avg_pool2d(made, (1, 1))
        weights = torch.sigmoid(self.excite(torch.relu(self.squeeze(pooled))))
        made = torch.cat([made * weights, skip], dim=1)
        first, second = made.chunk(2, dim=1)
        made = (first - 0.5 * second) * self.columns
        return self.head(made.mean([2, 3]))


class Attention(nn.Module):
    """Patches that attend to each other: between its layers are rows of vectors, and no maps."""

    def __init__(self, width: int = 8, layers: int = 3, classes: int = 5) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.place = nn.Parameter(torch.zeros(1, 1, width))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
                for _ in range(layers)
            )
        )
        self.head = nn.Linear(width, classes)

    def forward(self, image: Any) -> Any:
        rows = self.patches(image).flatten(2).transpose(1, 2) + self.place
        layers: Any = self.layers
        for layer in layers:
            attended, _ = layer.self_attn(rows, rows, rows)
            rows = layer.norm1(rows + attended)
            rows = layer.norm2(rows + layer.linear2(torch.relu(layer.linear1(rows))))
        return self.head(rows.mean(1))


class Choosing(nn.Module):
    """A network whose way depends on its numbers."""

    def forward(self, image: Any) -> Any:
        if image.sum() > 0:
            return image
        return -image


class Dropping(nn.Module):
    """A network that drops numbers in ways that ranks cannot have alike."""

    def __init__(self, by: str) -> None:
        super().__init__()
        self.by, self.drop, self.head = by, nn.AlphaDropout(0.5), nn.Linear(3, 5)
        self.layer = nn.TransformerEncoderLayer(3, 1, 8, dropout=0.1, batch_first=True)
        self.path = DropPath(0.5)
        self.path.mode = "batch"

    def forward(self, image: Any) -> Any:
        pooled = image.mean((2, 3))
        if self.by == "alpha":
            pooled = self.drop(pooled)
        elif self.by == "always":
            pooled = torch.dropout(pooled, 0.5, True)
        elif self.by == "attention":
            pooled = self.layer(pooled[:, None]).flatten(1)
        elif self.by == "batch":
            pooled = self.path(pooled)
        elif self.by == "noise":
            pooled = pooled + torch.rand_like(pooled)
        return self.head(pooled)


class Asking(nn.Module):
    """A network that asks whether it is in training."""

    mean: torch.Tensor
    var: torch.Tensor

    def __init__(self, what: str = "mode") -> None:
        super().__init__()
        self.what, self.conv, self.head = what, nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 5)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, image: Any) -> Any:
        made = self.conv(image)
        # Statistics of the batch in training, and kept ones in evaluation.
        made = functional.batch_norm(made, self.mean, self.var, training=self.training)
        made = functional.dropout(torch.relu(made), 0.0, self.training)
        if self.what == "width":
            made = made + (1 if self.training else 2)
        if self.what == "more" and self.training:
            made = made + 1
        logits = self.head(made.mean((2, 3)))
        return (logits, made) if self.what == "output" else logits


class Tied(nn.Module):
    """A network that uses one convolution twice, at its beginning and at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.both = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.middle, self.head = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, image: Any) -> Any:
        made = self.both(torch.relu(self.middle(torch.relu(self.both(self.stem(image))))))
        return self.head(made.mean((2, 3)))


def maps() -> nn.Module:
    """Return a network that gives smaller maps, and no logits."""
    return nn.Conv2d(3, 5, 3)


def frozen() -> nn.Module:
    """Return a network with a part that does not learn."""
    made = UNet()
    made.middle.requires_grad_(False)
    return made


def nothing() -> None:
    """Return no network."""
