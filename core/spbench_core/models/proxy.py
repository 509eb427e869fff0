"""Proxies: smaller models with the stages, tiles and layer kinds of a model.

A proxy is smaller in three ways, which change only the size of the messages between ranks. One or
two of equal neighbouring layers of a stage are kept. The image is halved while each tile keeps the
pixels that its neighbours read; halos are then as wide as before and come from the same ranks. If
that is not enough, every convolution has fewer filters.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

from spbench_core.layout.balance import Balance, list_layer_ranges
from spbench_core.layout.tiles import Grid
from spbench_core.models.compose import Chain, Concat, Residual
from spbench_core.models.layers import Cell, Layer, Model, Plain
from spbench_core.models.parts import Conv, MapShape, ModelError, Part
from spbench_core.models.reach import Reach, count_kept_values, find_reaches
from spbench_core.models.stages import check_fused_layers

KEPT_LAYERS = (2, 1)
"""The number of layers kept of a run of equal ones. Keeping all of them is tried first."""
FILTER_DIVISORS = (1, 2, 4, 8, 16)
"""Divisors of the number of filters, in the order in which they are tried."""
_ALL = sys.maxsize
KeptLayers = tuple[tuple[int, ...], ...]
"""The layers of the original model that are kept, by stage."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A smaller model that represents a model.

    Attributes:
        model: The smaller model.
        balance: The number of its layers in each stage.
        filter_divisor: The divisor of its number of filters.
        original: The model that it represents.
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
        """Whether it is the original model itself."""
        return self.model == self.original

    def __str__(self) -> str:
        if self.is_original:
            return describe_model(self.model)
        filters_text = ""
        if self.filter_divisor > 1:
            filters_text = f" with 1/{self.filter_divisor} of its filters"
        proxy_model = self.model
        original = self.original
        return (
            f"{len(proxy_model.layers)} of {len(original.layers)} layers of {original.name}"
            f"{filters_text} at {_format_size(proxy_model)} in place of {_format_size(original)}"
        )


def describe_model(model: Model) -> str:
    """Return the name, number of layers and image size of a whole model, for messages."""
    return f"all {len(model.layers)} layers of {model.name} at {_format_size(model)}"


def _format_size(model: Model) -> str:
    return f"{model.image.height}x{model.image.width}"


def count_multiply_adds(model: Model) -> int:
    """Return the multiply-adds of a model's forward pass of one image."""
    return sum(layer_count.multiply_adds for layer_count in model.counts)


def make_proxy(
    model: Model,
    balance: Balance,
    grids: Sequence[Grid],
    max_multiply_adds: float,
    *,
    max_kept_values: float = math.inf,
    fused_layers: int = 0,
) -> Proxy:
    """Return the costliest proxy within bounds, or else the cheapest one.

    Args:
        model: The model.
        balance: The number of its layers in each stage.
        grids: The tiles of each stage.
        max_multiply_adds: The limit of multiply-adds of a forward pass of one image.
        max_kept_values: The limit of values of one image that a step keeps for backward.
        fused_layers: The number of layers that share a halo exchange in spatial stages; 0: none.
    """
    original = Proxy(model, balance, 1, model)

    def fits(proxy: Proxy) -> bool:
        return (
            proxy.multiply_adds <= max_multiply_adds
            and count_kept_values(proxy.model) <= max_kept_values
        )

    if fits(original):
        return original
    shrinker = _Shrinker(model, balance, tuple(grids), fused_layers)
    cheapest = original
    for divisor in FILTER_DIVISORS:
        proxies = list(shrinker.list_proxies(divisor))
        fitting = [proxy for proxy in proxies if fits(proxy)]
        if fitting:
            return max(fitting, key=_get_multiply_adds)
        cheapest = min((cheapest, *proxies), key=_get_multiply_adds)
    return cheapest


def _get_multiply_adds(proxy: Proxy) -> int:
    return proxy.multiply_adds


class _Shrinker:
    """A generator of the smaller models that can represent a model."""

    def __init__(
        self, model: Model, balance: Balance, grids: tuple[Grid, ...], fused_layers: int
    ) -> None:
        self._model = model
        self._grids = grids
        self._fused_layers = fused_layers
        max_run_lengths = (
            max(max_run_length, fused_layers) for max_run_length in (_ALL, *KEPT_LAYERS)
        )
        kept_layer_choices = (
            _select_kept_layers(model, balance, max_run_length)
            for max_run_length in max_run_lengths
        )
        self._kept_layer_choices = list(dict.fromkeys(kept_layer_choices))
        self._reaches_by_layer = find_reaches(model)

    def list_proxies(self, divisor: int) -> Iterator[Proxy]:
        """Yield the proxies with a divisor of the number of filters, largest images first."""
        for kept_layers in self._kept_layer_choices:
            indices = [index for kept_in_stage in kept_layers for index in kept_in_stage]
            layers = tuple(_thin_layer(self._model.layers[index], divisor) for index in indices)
            for halvings in count():
                proxy_model = Model(
                    self._model.name, _halve_image(self._model.image, halvings), layers
                )
                if not self._is_valid_proxy(proxy_model, indices, kept_layers):
                    break
                yield Proxy(proxy_model, tuple(map(len, kept_layers)), divisor, self._model)

    def _is_valid_proxy(
        self, proxy_model: Model, indices: Sequence[int], kept_layers: KeptLayers
    ) -> bool:
        """Return whether a smaller model exists and its tiles have all halos."""
        if proxy_model.image.height < 2 or proxy_model.image.width < 2:
            return False
        try:
            reaches_by_layer = find_reaches(proxy_model)
        except ValueError:
            return False
        if not self._can_fuse(proxy_model, kept_layers):
            return False
        grid_by_layer = [
            grid for stage, grid in zip(kept_layers, self._grids, strict=True) for _ in stage
        ]
        original_reaches_by_layer = [self._reaches_by_layer[index] for index in indices]
        return all(
            grid.size == 1 or _has_halo(reach, original_reach, grid)
            for layer_reaches, original_reaches, grid in zip(
                reaches_by_layer, original_reaches_by_layer, grid_by_layer, strict=True
            )
            for reach, original_reach in zip(layer_reaches, original_reaches, strict=True)
        )

    def _can_fuse(self, proxy_model: Model, kept_layers: KeptLayers) -> bool:
        """Return whether a spatial stage has as many layers as share a halo exchange."""
        if not self._fused_layers:
            return True
        layers_and_grids = zip(
            list_layer_ranges(tuple(map(len, kept_layers))), self._grids, strict=True
        )
        spatial_layer_ranges = [layers for layers, grid in layers_and_grids if grid.size > 1]
        try:
            check_fused_layers(proxy_model, spatial_layer_ranges, self._fused_layers)
        except ModelError:
            return False
        return True


def _has_halo(reach: Reach, original_reach: Reach, grid: Grid) -> bool:
    """Return whether tiles have the pixels that their neighbours read."""
    halo_rows = min(max(1, original_reach.rows), original_reach.shape.height // grid.rows)
    halo_cols = min(max(1, original_reach.cols), original_reach.shape.width // grid.cols)
    return (
        reach.shape.height // grid.rows >= halo_rows and reach.shape.width // grid.cols >= halo_cols
    )


def _select_kept_layers(model: Model, balance: Balance, max_run_length: int) -> KeptLayers:
    """Keep the first ``max_run_length`` layers of each run of equal ones, by stage."""
    kept_layers: list[tuple[int, ...]] = []
    for first, last in list_layer_ranges(balance):
        equal_predecessors = 0
        kept_in_stage = [first]
        for previous_index, index in pairwise(range(first, last)):
            is_repeated = _is_repeated(model, previous_index, index)
            equal_predecessors = equal_predecessors + 1 if is_repeated else 0
            if equal_predecessors < max_run_length:
                kept_in_stage.append(index)
        kept_layers.append(tuple(kept_in_stage))
    return tuple(kept_layers)


def _is_repeated(model: Model, previous_index: int, index: int) -> bool:
    """Return whether a layer equals the one before and keeps its input's shape."""
    if model.flows[index] != model.flows[index + 1]:
        return False
    return model.layers[previous_index].drop_name() == model.layers[index].drop_name()


def _halve_image(image: MapShape, halvings: int) -> MapShape:
    """Halve an image several times; an odd side stays odd."""
    height = image.height
    width = image.width
    for _ in range(halvings):
        height, width = (side // 2 | (side & 1) for side in (height, width))
    return MapShape(image.channels, height, width)


def _thin_layer(layer: Layer, divisor: int) -> Layer:
    """Divide the number of filters of a layer, rounding up."""
    match layer:
        case Plain():
            return replace(layer, part=_thin_part(layer.part, divisor))
        case Cell():
            previous, older = layer.prepare
            operations = ((state, _thin_part(part, divisor)) for state, part in layer.operations)
            return replace(
                layer,
                prepare=(_thin_part(previous, divisor), _thin_part(older, divisor)),
                operations=tuple(operations),
            )
    return layer


def _thin_part(part: Part, divisor: int) -> Part:
    match part:
        case Conv():
            groups = _divide_up(part.groups, divisor)
            filters = _divide_up(part.filters, divisor * groups) * groups
            return replace(part, filters=filters, groups=groups)
        case Chain():
            return Chain(tuple((name, _thin_part(step, divisor)) for name, step in part.steps))
        case Concat():
            branches = ((name, _thin_part(branch, divisor)) for name, branch in part.branches)
            return Concat(tuple(branches))
        case Residual():
            main = _thin_part(part.main, divisor)
            return replace(part, main=main, shortcut=_thin_part(part.shortcut, divisor))
    return part


def _divide_up(number: int, divisor: int) -> int:
    return -(-number // divisor)
