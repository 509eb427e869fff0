"""Networks as a user might have them, which know nothing of spbench."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from spbench_parallel.models.imported import example


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
        made = self.up2(torch.cat([second, functional.interpolate(lowest, scale_factor=2)], 1))
        made = self.up1(torch.cat([first, functional.interpolate(made, scale_factor=2)], 1))
        pooled = functional.adaptive_avg_pool2d(made * self.scale, 1)
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
        both = torch.cat([first, functional.interpolate(lowest, scale_factor=2)], 1)
        return self.head(self.up(both))


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
        kept = maps.new_empty((images,) + (1,) * (maps.ndim - 1)).bernoulli_(keep)
        return maps * kept.div_(keep)


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
        made = self.drop(torch.relu(self.stem(image)))
        made = made + self.path(functional.dropout2d(self.conv1(made), 0.5, self.training))
        made = self.norm(self.drop_in_place(self.conv2(made)))
        made = torch.relu(self.inner(torch.dropout(made.mean((2, 3)), 0.2, self.training)))
        return self.head(self.drop(made))


class Dense(nn.Module):
    """Layers that read all earlier layers, with squeeze-and-excitation."""

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


class Norms(nn.Module):
    """Batch normalisations of maps and of vectors, with different momenta."""

    def __init__(self, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(given, width, 3, padding=1) for given in (3, width, width)
        )
        self.norms = nn.ModuleList(
            nn.BatchNorm2d(width, momentum=momentum) for momentum in (0.5, 0.1, 0.03)
        )
        self.head = nn.Linear(width, 8)
        self.last = nn.BatchNorm1d(8, momentum=0.3)
        self.classify = nn.Linear(8, classes)

    def forward(self, image: Any) -> Any:
        made = image
        for conv, norm in zip(self.convs, self.norms, strict=True):
            made = functional.relu(norm(conv(made)))
        return self.classify(functional.relu(self.last(self.head(made.mean((2, 3))))))


class Written(nn.Module):
    """A network that stores tensors in its forward pass, outside of its state_dict."""

    def __init__(self, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 1)
        self.table = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.order = list(range(width))[::-1]
        self.head = nn.Linear(width, classes)

    def forward(self, image: Any) -> Any:
        made = functional.relu(self.first(image))
        made = made * self.table[torch.tensor(self.order)].view(1, -1, 1, 1)
        made = functional.relu(self.second(made)) + torch.tensor(0.5)
        return self.head(made.mean((2, 3)))


class Many(nn.Module):
    """A network of many kinds of operators, with and without a version over tiles."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, stride=2, padding=2)
        self.grouped = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4, bias=False)
        self.norm = nn.BatchNorm2d(8, eps=1e-3, momentum=0.2)
        self.groups = nn.GroupNorm(2, 8)
        self.each = nn.InstanceNorm2d(8, affine=True)
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


class Resizing(nn.Module):
    """A network that makes its maps larger and smaller in every way."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(3 if at == 0 else width, width, 3, padding=1) for at in range(9)
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
        made = first(image)
        sizes = made.shape[-2:]
        made = convs[0](self.ceil(made))
        made = convs[1](functional.interpolate(made, size=(19, 22), mode="bilinear"))
        made = convs[2](functional.max_pool2d(made, 2, padding=1, dilation=2, ceil_mode=True))
        made = convs[3](functional.interpolate(made, (13, 17), mode="bilinear", align_corners=True))
        made = convs[4](self.up(made) + functional.interpolate(made, scale_factor=1.5))
        made = made + functional.interpolate(made, scale_factor=1, mode="nearest-exact")
        made = convs[5](functional.avg_pool2d(made, 3, 2, 1, ceil_mode=True))
        made = made + functional.avg_pool2d(
            made, 3, 1, 1, ceil_mode=True, count_include_pad=False, divisor_override=7
        )
        made = torch.relu(self.spread(self.grouped(self.wider(made))))
        made = convs[6](functional.adaptive_avg_pool2d(self.far(made), (11, 7)))
        made = convs[7](functional.interpolate(made, size=sizes, mode="nearest"))
        return self.head(made.mean((2, 3)))


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
        made = self.reflect(torch.relu(self.stem(image)))
        made = self.copy(made) + self.round(made)
        made = self.norm(self.even(functional.pad(made, (0, 1, 1, 2))))
        made = self.valid(functional.pad(self.around(made), (1, 0, -1, 2), value=0.5))
        cut = made[:, :, 1:-1, 2:]
        wide = functional.pad(made, (2, 1, 1, 1), mode="circular")
        wide = functional.pad(wide, (0, 2, 0, 0), mode="replicate")
        pooled = [functional.adaptive_avg_pool2d(one, 1).flatten(1) for one in (cut, wide)]
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
        made = self.stem(image)
        for across, norm, wide, narrow in zip(
            self.across, self.norms, self.wide, self.narrow, strict=True
        ):
            inner = norm(across(made).permute(0, 2, 3, 1)) * self.last
            inner = narrow(functional.gelu(wide(self.drop(inner)))).softmax(-1)
            inner = self.scale * torch.permute(inner, (0, 3, 1, 2))
            made = made + self.path(inner)
        made = made.permute(0, 2, 3, 1)
        made = functional.layer_norm(made, (made.shape[-1],), self.weight).permute(0, 3, 1, 2)
        images, channels, height, width = made.shape
        grouped = made.view(images, 2, channels // 2, height, width).transpose(1, 2)
        made = grouped.contiguous().view(images, channels, height, width)
        made = made * torch.sigmoid(made.mean(1, keepdim=True)) + self.soft(made)
        made = self.slope(made)
        made = torch.cat([made[:, 1::2], made[:, ::2]], 1)
        return self.head(made.mean((2, 3)))


class Attention(nn.Module):
    """Attention between patches: its layers exchange rows of vectors, not maps."""

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


class Windows(nn.Module):
    """Attention between the pixels of a window, in rows with the sides of a map."""

    def __init__(self, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.value = nn.Linear(width, width)
        self.head = nn.Conv2d(width, classes, 3, padding=1)

    def forward(self, image: Any) -> Any:
        made = self.stem(image)
        count, width, rows, cols = made.shape
        parts = made.reshape(count, width, 2, rows // 2, 2, cols // 2).permute(0, 2, 4, 3, 5, 1)
        tokens = parts.reshape(count, 4, rows * cols // 4, width)
        shares = torch.softmax(tokens @ tokens.transpose(-1, -2), -1)
        mixed = (shares @ self.value(tokens)).reshape(count, 2, 2, rows // 2, cols // 2, width)
        whole = mixed.permute(0, 5, 1, 3, 2, 4).reshape(count, width, rows, cols)
        return self.head(made + whole).mean((2, 3))


class Choosing(nn.Module):
    """A network with a branch that depends on its values."""

    def forward(self, image: Any) -> Any:
        if image.sum() > 0:
            return image
        return -image


class Dropping(nn.Module):
    """A network that drops numbers in ways that ranks cannot have alike."""

    def __init__(self, by: str) -> None:
        super().__init__()
        self.by = by
        self.drop = nn.AlphaDropout(0.5)
        self.head = nn.Linear(3, 5)
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
        elif self.by == "product":
            pooled = functional.scaled_dot_product_attention(
                *(pooled[:, None],) * 3, dropout_p=0.1
            ).flatten(1)
        elif self.by == "rrelu":
            pooled = functional.rrelu(pooled, training=self.training)
        elif self.by == "noise":
            pooled = pooled + torch.rand_like(pooled)
        return self.head(pooled)


class Asking(nn.Module):
    """A network that asks whether it is in training."""

    mean: torch.Tensor
    var: torch.Tensor

    def __init__(self, what: str = "mode") -> None:
        super().__init__()
        self.what = what
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)
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


class Counting(nn.Module):
    """A network that counts its forward passes in training, two at a time."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(given, 4, 3, padding=1) for given in (3, 4, 4))
        self.head = nn.Linear(4, 5)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, image: Any) -> Any:
        made = image
        for conv in self.convs:
            made = torch.relu(conv(made))
        if self.training:
            self.count += 2
        return self.head(made.mean((2, 3)))


class Tied(nn.Module):
    """A network that uses one convolution twice, at its beginning and at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.both = nn.Conv2d(4, 4, 3, padding=1)
        self.middle = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, image: Any) -> Any:
        made = self.both(torch.relu(self.middle(torch.relu(self.both(self.stem(image))))))
        return self.head(made.mean((2, 3)))


def maps() -> nn.Module:
    """Return a network that gives smaller maps, and no logits."""
    return nn.Conv2d(3, 5, 3)


def one() -> nn.Module:
    """Return a network that predicts one class of pixels."""
    return nn.Conv2d(3, 1, 3, padding=1)


def frozen() -> nn.Module:
    """Return a network with a part that does not learn."""
    made = UNet()
    made.middle.requires_grad_(False)
    return made


def unbuilt() -> nn.Module:
    """Fail as torchvision does where its compiled part is of another build of torch."""
    raise RuntimeError("operator torchvision::nms does not exist")


def nothing() -> None:
    """Return no network."""
