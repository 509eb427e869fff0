"""Networks as a user might have them, which know nothing of spbench."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from spbench_parallel.models.imported import example


class Block(nn.Module):
    """A residual block that writes into its own maps."""

    def __init__(self, in_channels: int, maps: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, maps, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(maps)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(maps, maps, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(maps)
        self.short = nn.Conv2d(in_channels, maps, 1) if in_channels != maps else nn.Identity()

    def forward(self, maps: Any) -> Any:
        output = self.relu(self.bn1(self.conv1(maps)))
        output = self.bn2(self.conv2(output))
        output += self.short(maps)
        return self.relu(output)


class UNet(nn.Module):
    """A U-Net that classifies: its skips reach from the first stages to the last ones."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.down1 = Block(3, width)
        self.down2 = Block(width, 2 * width)
        self.middle = Block(2 * width, 4 * width)
        self.up2 = Block(6 * width, 2 * width)
        self.up1 = Block(3 * width, width)
        self.scale = nn.Parameter(torch.full((1,), 1.5))
        self.head = nn.Linear(width, classes)

    def forward(self, image: Any) -> Any:
        first = self.down1(image)
        second = self.down2(functional.max_pool2d(first, 2))
        lowest = self.middle(functional.max_pool2d(second, 2))
        maps = self.up2(torch.cat([second, functional.interpolate(lowest, scale_factor=2)], 1))
        maps = self.up1(torch.cat([first, functional.interpolate(maps, scale_factor=2)], 1))
        pooled = functional.adaptive_avg_pool2d(maps * self.scale, 1)
        return {"out": self.head(torch.flatten(pooled, 1)), "aux": pooled}


class Levels(example.UNet):
    """A U-Net of three levels. Its outer skips pass stages."""

    def __init__(self, width: int = 4, classes: int = 5, segments: bool = False) -> None:
        super().__init__(width, levels=3, classes=classes, segments=segments)


class Segmenter(nn.Module):
    """A U-Net of one level that predicts the class of each pixel."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.down = Block(3, width)
        self.middle = Block(width, 2 * width)
        self.up = Block(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, image: Any) -> Any:
        first = self.down(image)
        lowest = self.middle(functional.max_pool2d(first, 2))
        shared = torch.cat([first, functional.interpolate(lowest, scale_factor=2)], 1)
        return self.head(self.up(shared))


class DropPath(nn.Module):
    """Stochastic depth, as libraries of networks have it."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob
        self.mode = "row"

    def forward(self, maps: Any) -> Any:
        if not self.training:
            return maps
        keep = 1.0 - self.drop_prob
        images = 1 if self.mode == "batch" else maps.shape[0]
        mask = maps.new_empty((images,) + (1,) * (maps.ndim - 1)).bernoulli_(keep)
        return maps * mask.div_(keep)


class Chance(nn.Module):
    """A network with dropout of values, channels and whole images."""

    def __init__(self, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.drop = nn.Dropout(0.3)
        self.drop_in_place = nn.Dropout(0.3, inplace=True)
        self.norm = nn.BatchNorm2d(width)
        self.path = DropPath(0.4)
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.inner = nn.Linear(width, 7)
        self.head = nn.Linear(7, classes)

    def forward(self, image: Any) -> Any:
        maps = self.drop(torch.relu(self.stem(image)))
        maps = maps + self.path(functional.dropout2d(self.conv1(maps), 0.5, self.training))
        maps = self.norm(self.drop_in_place(self.conv2(maps)))
        maps = torch.relu(self.inner(torch.dropout(maps.mean((2, 3)), 0.2, self.training)))
        return self.head(self.drop(maps))


class Dense(nn.Module):
    """Layers that read all earlier layers, with squeeze-and-excitation."""

    def __init__(self, growth: int = 4, layers: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, growth, 3, stride=2, padding=1)
        self.convs = nn.ModuleList(
            nn.Conv2d(growth * (index + 1), growth, 3, padding=1) for index in range(layers)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(2, growth) for _ in range(layers))
        self.excites = nn.ModuleList(nn.Conv2d(growth, growth, 1) for _ in range(layers))
        self.drop = nn.Dropout(0.0)
        self.head = nn.Linear(growth * (layers + 1), classes)

    def forward(self, image: Any) -> Any:
        maps = [self.stem(image)]
        for conv, norm, excite in zip(self.convs, self.norms, self.excites, strict=True):
            output = functional.silu(norm(conv(torch.cat(maps, 1))))
            share = torch.sigmoid(excite(output.mean((2, 3), keepdim=True)))
            maps.append(output * share)
        return self.head(self.drop(torch.cat(maps, 1).mean((2, 3))))


class Norms(nn.Module):
    """Batch normalisations of maps and of vectors, with different momenta."""

    def __init__(self, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(in_channels, width, 3, padding=1) for in_channels in (3, width, width)
        )
        self.norms = nn.ModuleList(
            nn.BatchNorm2d(width, momentum=momentum) for momentum in (0.5, 0.1, 0.03)
        )
        self.head = nn.Linear(width, 8)
        self.last = nn.BatchNorm1d(8, momentum=0.3)
        self.classify = nn.Linear(8, classes)

    def forward(self, image: Any) -> Any:
        maps = image
        for conv, norm in zip(self.convs, self.norms, strict=True):
            maps = functional.relu(norm(conv(maps)))
        return self.classify(functional.relu(self.last(self.head(maps.mean((2, 3))))))


class StoredTensors(nn.Module):
    """A network that stores tensors in its forward pass, outside of its state_dict."""

    def __init__(self, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 1)
        self.table = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.order = list(range(width))[::-1]
        self.head = nn.Linear(width, classes)

    def forward(self, image: Any) -> Any:
        maps = functional.relu(self.first(image))
        maps = maps * self.table[torch.tensor(self.order)].view(1, -1, 1, 1)
        maps = functional.relu(self.second(maps)) + torch.tensor(0.5)
        return self.head(maps.mean((2, 3)))


class ManyOperators(nn.Module):
    """A network of many kinds of operators, with and without a version over tiles."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, stride=2, padding=2)
        self.grouped = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4, bias=False)
        self.norm = nn.BatchNorm2d(8, eps=1e-3, momentum=0.2)
        self.groups = nn.GroupNorm(2, 8)
        self.per_image = nn.InstanceNorm2d(8, affine=True)
        self.layer = nn.LayerNorm(8)
        self.mirrored = nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")
        self.larger = nn.ConvTranspose2d(8, 16, 2, stride=2)
        self.shuffle = nn.PixelShuffle(2)
        self.narrow = nn.Conv2d(4, 8, (1, 3), padding=(0, 1))
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.excite = nn.Conv2d(4, 8, 1)
        self.share = nn.Parameter(torch.full((8, 1, 1), 0.5))
        self.columns = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(8, classes)

    def forward(self, image: Any) -> Any:
        maps = functional.hardswish(self.norm(self.grouped(self.stem(image))))
        maps = functional.max_pool2d(maps, 3, stride=1, padding=1) + self.groups(maps)
        maps = functional.avg_pool2d(
            self.per_image(maps), 3, stride=1, padding=1, count_include_pad=False
        )
        maps = self.layer(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        skip = maps * self.share
        maps = self.narrow(self.shuffle(self.larger(self.mirrored(maps))))
        maps = functional.interpolate(maps, size=skip.shape[-2:], mode="bilinear") + skip
        pooled = functional.adaptive_avg_pool2d(maps, (1, 1))
        weights = torch.sigmoid(self.excite(torch.relu(self.squeeze(pooled))))
        maps = torch.cat([maps * weights, skip], dim=1)
        first, second = maps.chunk(2, dim=1)
        maps = (first - 0.5 * second) * self.columns
        return self.head(maps.mean([2, 3]))


class Resizing(nn.Module):
    """A network that makes its maps larger and smaller in every way."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(3 if index == 0 else width, width, 3, padding=1) for index in range(9)
        )
        self.wider = nn.ConvTranspose2d(width, width, 3, stride=2, padding=1, output_padding=1)
        self.grouped = nn.ConvTranspose2d(width, width, (4, 2), stride=2, groups=2, bias=False)
        self.spread = nn.ConvTranspose2d(width, width, 3, dilation=2, padding=(1, 3))
        self.far = nn.ConvTranspose2d(width, width, 1, stride=3, output_padding=2)
        self.up = nn.Upsample(scale_factor=1.5, mode="bilinear", align_corners=False)
        self.ceil = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Any) -> Any:
        first, *convs = self.convs
        maps = first(image)
        sizes = maps.shape[-2:]
        maps = convs[0](self.ceil(maps))
        maps = convs[1](functional.interpolate(maps, size=(19, 22), mode="bilinear"))
        maps = convs[2](functional.max_pool2d(maps, 2, padding=1, dilation=2, ceil_mode=True))
        maps = convs[3](functional.interpolate(maps, (13, 17), mode="bilinear", align_corners=True))
        maps = convs[4](self.up(maps) + functional.interpolate(maps, scale_factor=1.5))
        maps = maps + functional.interpolate(maps, scale_factor=1, mode="nearest-exact")
        maps = convs[5](functional.avg_pool2d(maps, 3, 2, 1, ceil_mode=True))
        maps = maps + functional.avg_pool2d(
            maps, 3, 1, 1, ceil_mode=True, count_include_pad=False, divisor_override=7
        )
        maps = torch.relu(self.spread(self.grouped(self.wider(maps))))
        maps = convs[6](functional.adaptive_avg_pool2d(self.far(maps), (11, 7)))
        maps = convs[7](functional.interpolate(maps, size=sizes, mode="nearest"))
        return self.head(maps.mean((2, 3)))


class Padding(nn.Module):
    """A network with all kinds of padding around an image, and with crops."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding="same", dilation=2)
        self.reflect = nn.Conv2d(width, width, 5, 2, 2, groups=2, padding_mode="reflect")
        self.copy = nn.Conv2d(width, width, 5, padding=2, padding_mode="replicate")
        self.round = nn.Conv2d(
            width, width, 5, 1, (2, 4), (1, 2), groups=2, padding_mode="circular"
        )
        self.even = nn.Conv2d(width, width, (4, 2), bias=False)
        self.around = nn.ReflectionPad2d((1, 2, 3, 0))
        self.valid = nn.Conv2d(width, width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, image: Any) -> Any:
        maps = self.reflect(torch.relu(self.stem(image)))
        maps = self.copy(maps) + self.round(maps)
        maps = self.norm(self.even(functional.pad(maps, (0, 1, 1, 2))))
        maps = self.valid(functional.pad(self.around(maps), (1, 0, -1, 2), value=0.5))
        cut = maps[:, :, 1:-1, 2:]
        wide = functional.pad(maps, (2, 1, 1, 1), mode="circular")
        wide = functional.pad(wide, (0, 2, 0, 0), mode="replicate")
        pooled = [functional.adaptive_avg_pool2d(branch, 1).flatten(1) for branch in (cut, wide)]
        return self.head(torch.cat(pooled, 1))


class ChannelsLast(nn.Module):
    """Blocks with channels last like those of ConvNeXt, and groups of channels."""

    def __init__(self, width: int = 8, blocks: int = 2, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=2, padding=1)
        self.across = nn.ModuleList(
            nn.Conv2d(width, width, 5, padding=2, groups=width) for _ in range(blocks)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))
        self.wide = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(blocks))
        self.narrow = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(blocks))
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.3))
        self.path = DropPath(0.2)
        self.last = nn.Parameter(torch.full((width,), 1.1))
        self.slope = nn.PReLU(width)
        self.weight = nn.Parameter(torch.ones(width))
        self.soft = nn.Softmax(dim=1)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Any) -> Any:
        maps = self.stem(image)
        for across, norm, wide, narrow in zip(
            self.across, self.norms, self.wide, self.narrow, strict=True
        ):
            inner = norm(across(maps).permute(0, 2, 3, 1)) * self.last
            inner = narrow(functional.gelu(wide(self.drop(inner)))).softmax(-1)
            inner = self.scale * torch.permute(inner, (0, 3, 1, 2))
            maps = maps + self.path(inner)
        maps = maps.permute(0, 2, 3, 1)
        maps = functional.layer_norm(maps, (maps.shape[-1],), self.weight).permute(0, 3, 1, 2)
        images, channels, height, width = maps.shape
        grouped = maps.view(images, 2, channels // 2, height, width).transpose(1, 2)
        maps = grouped.contiguous().view(images, channels, height, width)
        maps = maps * torch.sigmoid(maps.mean(1, keepdim=True)) + self.soft(maps)
        maps = self.slope(maps)
        maps = torch.cat([maps[:, 1::2], maps[:, ::2]], 1)
        return self.head(maps.mean((2, 3)))


class Attention(nn.Module):
    """Attention between patches: its layers exchange rows of vectors, not maps."""

    def __init__(self, width: int = 8, layers: int = 3, classes: int = 5) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.position = nn.Parameter(torch.zeros(1, 1, width))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
                for _ in range(layers)
            )
        )
        self.head = nn.Linear(width, classes)

    def forward(self, image: Any) -> Any:
        rows = self.patches(image).flatten(2).transpose(1, 2) + self.position
        layers: Any = self.layers
        for layer in layers:
            attended, _ = layer.self_attn(rows, rows, rows)
            rows = layer.norm1(rows + attended)
            rows = layer.norm2(rows + layer.linear2(torch.relu(layer.linear1(rows))))
        return self.head(rows.mean(1))


class Windows(nn.Module):
    """Attention between the pixels of a window, in rows with the sides of a map."""

    def __init__(self, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.value = nn.Linear(width, width)
        self.head = nn.Conv2d(width, classes, 3, padding=1)

    def forward(self, image: Any) -> Any:
        maps = self.stem(image)
        count, width, rows, cols = maps.shape
        parts = maps.reshape(count, width, 2, rows // 2, 2, cols // 2).permute(0, 2, 4, 3, 5, 1)
        tokens = parts.reshape(count, 4, rows * cols // 4, width)
        shares = torch.softmax(tokens @ tokens.transpose(-1, -2), -1)
        mixed = (shares @ self.value(tokens)).reshape(count, 2, 2, rows // 2, cols // 2, width)
        windows = mixed.permute(0, 5, 1, 3, 2, 4).reshape(count, width, rows, cols)
        return self.head(maps + windows).mean((2, 3))


class ValueBranch(nn.Module):
    """A network with a branch that depends on its values."""

    def forward(self, image: Any) -> Any:
        if image.sum() > 0:
            return image
        return -image


class RandomDrops(nn.Module):
    """A network that drops numbers in ways that ranks cannot repeat."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.variant = variant
        self.drop = nn.AlphaDropout(0.5)
        self.head = nn.Linear(3, 5)
        self.layer = nn.TransformerEncoderLayer(3, 1, 8, dropout=0.1, batch_first=True)
        self.path = DropPath(0.5)
        self.path.mode = "batch"

    def forward(self, image: Any) -> Any:
        pooled = image.mean((2, 3))
        if self.variant == "alpha":
            pooled = self.drop(pooled)
        elif self.variant == "always":
            pooled = torch.dropout(pooled, 0.5, True)
        elif self.variant == "attention":
            pooled = self.layer(pooled[:, None]).flatten(1)
        elif self.variant == "batch":
            pooled = self.path(pooled)
        elif self.variant == "product":
            pooled = functional.scaled_dot_product_attention(
                *(pooled[:, None],) * 3, dropout_p=0.1
            ).flatten(1)
        elif self.variant == "rrelu":
            pooled = functional.rrelu(pooled, training=self.training)
        elif self.variant == "noise":
            pooled = pooled + torch.rand_like(pooled)
        return self.head(pooled)


class ModeReader(nn.Module):
    """A network that reads whether it is in training."""

    mean: torch.Tensor
    var: torch.Tensor

    def __init__(self, variant: str = "mode") -> None:
        super().__init__()
        self.variant = variant
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, image: Any) -> Any:
        maps = self.conv(image)
        # Statistics of the batch in training, and kept ones in evaluation.
        maps = functional.batch_norm(maps, self.mean, self.var, training=self.training)
        maps = functional.dropout(torch.relu(maps), 0.0, self.training)
        if self.variant == "width":
            maps = maps + (1 if self.training else 2)
        if self.variant == "more" and self.training:
            maps = maps + 1
        logits = self.head(maps.mean((2, 3)))
        return (logits, maps) if self.variant == "output" else logits


class PassCounter(nn.Module):
    """A network that counts its forward passes in training, two at a time."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(in_channels, 4, 3, padding=1) for in_channels in (3, 4, 4)
        )
        self.head = nn.Linear(4, 5)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, image: Any) -> Any:
        maps = image
        for conv in self.convs:
            maps = torch.relu(conv(maps))
        if self.training:
            self.count += 2
        return self.head(maps.mean((2, 3)))


class SharedConv(nn.Module):
    """A network that uses one convolution twice, at its beginning and at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.shared = nn.Conv2d(4, 4, 3, padding=1)
        self.middle = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, image: Any) -> Any:
        maps = self.shared(torch.relu(self.middle(torch.relu(self.shared(self.stem(image))))))
        return self.head(maps.mean((2, 3)))


def make_map_network() -> nn.Module:
    """Return a network with smaller maps instead of logits."""
    return nn.Conv2d(3, 5, 3)


def make_one_class_network() -> nn.Module:
    """Return a network that predicts one class of pixels."""
    return nn.Conv2d(3, 1, 3, padding=1)


def make_frozen_network() -> nn.Module:
    """Return a network with a part that does not learn."""
    network = UNet()
    network.middle.requires_grad_(False)
    return network


def fail_like_torchvision() -> nn.Module:
    """Fail like torchvision with a compiled part for another build of torch."""
    raise RuntimeError("operator torchvision::nms does not exist")


def return_no_network() -> None:
    """Return no network."""
