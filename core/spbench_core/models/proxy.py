"""Proxies: smaller models with the stages, tiles, joints and kinds of layers of a model.

Three things make a proxy smaller, and none of them changes what ranks say to each other but its
size. Of neighbouring layers of a stage that are alike one or two are kept. The image is halved, as
long as each tile keeps the pixels that its neighbours read, so that halos are as wide as before and
come from the same ranks. Where that is not enough, every convolution has fewer filters.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

from spbench_core.layout.balance import Balance, layer_ranges
from spbench_core.layout.tiles import Grid
from spbench_core.models.compose import Chain, Concat, Residual
from spbench_core.models.halo_groups import check_fused_layers
from spbench_core.models.layers import Cell, Layer, Model, Plain
from spbench_core.models.parts import Conv, Map, ModelError, Part
from spbench_core.models.reach import Reach, count_kept_values, find_reaches

KEPT_LAYERS = (2, 1)
"""Layers of a row of like ones that are kept; all of them are tried before."""
FILTER_DIVISORS = (1, 2, 4, 8, 16)
"""Divisors of the number of filters, one tried after the other."""
_ALL = sys.maxsize
KeptLayers = tuple[tuple[int, ...], ...]
"""By stage, the layers of the whole model that are kept."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A smaller model that takes the place of one.

    Attributes:
        model: The smaller model.
        balance: Its layers in each stage.
        thinned: The divisor of its number of filters.
        whole: The model that it stands for.
    """

    model: Model
    balance: Balance
    filter_divisor: int
    original: Model

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of a forward pass of one image."""
        return count_multiply_adds(self.model)

    @property
    def is_original(self) -> bool:
        """Whether it is the whole model itself."""
        return self.model == self.original

    def __str__(self) -> str:
        if self.is_original:
            return describe_model(self.model)
        filters = (
            "" if self.filter_divisor == 1 else f" with 1/{self.filter_divisor} of its filters"
        )
        small = self.model
        whole = self.original
        return (
            f"{len(small.layers)} of {len(whole.layers)} layers of {whole.name}{filters} at "
            f"{_size(small)} in place of {_size(whole)}"
        )


def describe_model(model: Model) -> str:
    """Return a whole model and the size of its images in words."""
    return f"all {len(model.layers)} layers of {model.name} at {_size(model)}"


def _size(model: Model) -> str:
    return f"{model.image.height}x{model.image.width}"


def count_multiply_adds(model: Model) -> int:
    """Return a model's multiply-adds of a forward pass of one image."""
    return sum(count.multiply_adds for count in model.counts)


def make_proxy(
    model: Model,
    balance: Balance,
    grids: Sequence[Grid],
    max_multiply_adds: float,
    *,
    max_kept_values: float = math.inf,
    fused_layers: int = 0,
) -> Proxy:
    """Return the costliest proxy within bounds of time and memory; else the least one.

    Args:
        model: The model.
        balance: Its layers in each stage.
        grids: The tiles of each stage.
        max_multiply_adds: Multiply-adds of a forward pass of one image.
        max_kept_values: Numbers of one image that a step keeps.
        fused_layers: In stages of tiles, layers that share a halo exchange; 0: none do.
    """
    whole = Proxy(model, balance, 1, model)

    def fits(proxy: Proxy) -> bool:
        return (
            proxy.multiply_adds <= max_multiply_adds
            and count_kept_values(proxy.model) <= max_kept_values
        )

    if fits(whole):
        return whole
    shrinker = _Shrinker(model, balance, tuple(grids), fused_layers)
    least = whole
    for by in FILTER_DIVISORS:
        found = list(shrinker.proxies(by))
        fitting = [one for one in found if fits(one)]
        if fitting:
            return max(fitting, key=_cost)
        least = min((least, *found), key=_cost)
    return least


def _cost(proxy: Proxy) -> int:
    return proxy.multiply_adds


class _Shrinker:
    """The smaller models that can serve for one."""

    def __init__(
        self, model: Model, balance: Balance, grids: tuple[Grid, ...], fused_layers: int
    ) -> None:
        self._model = model
        self._grids = grids
        self._fused_layers = fused_layers
        rows = (_kept(model, balance, max(most, fused_layers)) for most in (_ALL, *KEPT_LAYERS))
        self._kept = list(dict.fromkeys(rows))
        self._reaches = find_reaches(model)

    def proxies(self, by: int) -> Iterator[Proxy]:
        """Yield the proxies with so many times fewer filters, from the largest image down."""
        for kept in self._kept:
            places = [index for stage in kept for index in stage]
            layers = tuple(_thinned(self._model.layers[index], by) for index in places)
            for halvings in count():
                small = Model(self._model.name, _halved(self._model.image, halvings), layers)
                if not self._serves(small, places, kept):
                    break
                yield Proxy(small, tuple(map(len, kept)), by, self._model)

    def _serves(self, small: Model, places: Sequence[int], kept: KeptLayers) -> bool:
        """Return whether a smaller model can be, and its tiles have what their neighbours read."""
        if small.image.height < 2 or small.image.width < 2:
            return False
        try:
            found = find_reaches(small)
        except ValueError:
            return False
        grids = [grid for stage, grid in zip(kept, self._grids, strict=True) for _ in stage]
        tiles = zip(found, (self._reaches[place] for place in places), grids, strict=True)
        return self._fuses(small, kept) and all(
            grid.size == 1 or _within(have, want, grid)
            for several, wanted, grid in tiles
            for have, want in zip(several, wanted, strict=True)
        )

    def _fuses(self, small: Model, kept: KeptLayers) -> bool:
        """Return whether a stage of tiles has as many layers as share an exchange."""
        if not self._fused_layers:
            return True
        ranges = zip(layer_ranges(tuple(map(len, kept))), self._grids, strict=True)
        tiled = [layers for layers, grid in ranges if grid.size > 1]
        try:
            check_fused_layers(small, tiled, self._fused_layers)
        except ModelError:
            return False
        return True


def _within(have: Reach, want: Reach, grid: Grid) -> bool:
    """Return whether tiles have the pixels that their neighbours read, as far as they had them."""
    whole = want.data
    data = have.data
    return data.height // grid.rows >= min(
        max(1, want.rows), whole.height // grid.rows
    ) and data.width // grid.cols >= min(max(1, want.cols), whole.width // grid.cols)


def _kept(model: Model, balance: Balance, most: int) -> KeptLayers:
    """Return the layers that each stage keeps: of a row of like ones the first few."""
    kept: list[tuple[int, ...]] = []
    for first, last in layer_ranges(balance):
        alike = 0
        stage = [first]
        for before, index in pairwise(range(first, last)):
            alike = alike + 1 if _alike(model, before, index) else 0
            if alike < most:
                stage.append(index)
        kept.append(tuple(stage))
    return tuple(kept)


def _alike(model: Model, one: int, other: int) -> bool:
    """Return whether a layer is like the one before it, and leaves its input's shape as it is."""
    return model.flows[other] == model.flows[other + 1] and _unnamed(model.layers[one]) == _unnamed(
        model.layers[other]
    )


def _unnamed(layer: Layer) -> Layer:
    return replace(layer, name="") if isinstance(layer, Plain | Cell) else layer


def _halved(image: Map, times: int) -> Map:
    """Return an image halved a number of times; an odd side stays odd."""
    height = image.height
    width = image.width
    for _ in range(times):
        height, width = (side // 2 | (side & 1) for side in (height, width))
    return Map(image.channels, height, width)


def _thinned(layer: Layer, by: int) -> Layer:
    """Return a layer with fewer filters; their number is rounded up."""
    match layer:
        case Plain():
            return replace(layer, part=_thin(layer.part, by))
        case Cell():
            one, other = layer.prepare
            return replace(
                layer,
                prepare=(_thin(one, by), _thin(other, by)),
                operations=tuple((state, _thin(part, by)) for state, part in layer.operations),
            )
    return layer


def _thin(part: Part, by: int) -> Part:
    match part:
        case Conv():
            groups = -(-part.groups // by)
            return replace(part, filters=-(-part.filters // (by * groups)) * groups, groups=groups)
        case Chain():
            return Chain(tuple((name, _thin(step, by)) for name, step in part.steps))
        case Concat():
            return Concat(tuple((name, _thin(branch, by)) for name, branch in part.branches))
        case Residual():
            return replace(part, main=_thin(part.main, by), shortcut=_thin(part.shortcut, by))
    return part
