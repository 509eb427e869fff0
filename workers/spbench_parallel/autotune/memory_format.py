"""The memory format in which the stages of a plan are computed faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.balance import list_layer_ranges
from spbench_core.layout.stages import RankCoordinates
from spbench_core.models.layers import Model
from spbench_core.models.parts import MapShape
from spbench_core.number_text import format_duration
from spbench_parallel.alternatives import time_alternatives
from spbench_parallel.device.failures import note_activity
from spbench_parallel.device.formats import (
    MEMORY_FORMATS,
    MemoryFormat,
    convert_maps,
    set_memory_format,
)
from spbench_parallel.device.memory import release_memory
from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.groups import create_group
from spbench_parallel.layer_times import LapTimer, time_backward, time_forward
from spbench_parallel.models.build import build_stage, free_operators
from spbench_parallel.models.builders import DenseBuilder, ModuleBuilder, SpatialBuilder
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.plan import ModelPlan
from spbench_parallel.precision.formats import MixedProducts
from spbench_parallel.progress import NO_PROGRESS, Progress
from spbench_parallel.spatial.tiling import Tiling

ROUNDS = 3
MAX_TIME_RATIO = 0.97
"""The ratio of times below which channels_last is chosen: differences of a thirtieth are noise."""
_FORMATS: tuple[MemoryFormat, ...] = tuple(MEMORY_FORMATS)


@dataclass(frozen=True, slots=True)
class _Section:
    """Some layers of a stage, and the tiles that they are computed on.

    Attributes:
        layers: The first layer, and one past the last.
        tiling: The tiles of the image; None if it is whole.
    """

    layers: tuple[int, int]
    tiling: Tiling | None

    @property
    def length(self) -> int:
        """The number of layers."""
        return self.layers[1] - self.layers[0]

    def make_layer_key(self, model: Model) -> object:
        """Return a key that is equal for sections that take equally long."""
        first, last = self.layers
        layers = model.make_layer_key(first) if last == first + 1 else self.layers
        return layers, self.tiling is not None

    def describe(self, model: Model) -> str:
        """Return the subject of a message about these layers, with its verb."""
        first, last = (model.layers[index].name for index in (self.layers[0], self.layers[1] - 1))
        return f"layer {first} was" if first == last else f"layers {first} to {last} were"

    @property
    def builder(self) -> ModuleBuilder:
        """The builder of its operators."""
        return DenseBuilder() if self.tiling is None else SpatialBuilder(self.tiling)

    def local_shape(self, shape: MapShape) -> tuple[int, int]:
        """Return this rank's rows and columns of a map."""
        if self.tiling is None:
            return shape.height, shape.width
        return self.tiling.resized(shape.height, shape.width).tile.shape


def choose_format(
    plan: ModelPlan, world: MPI.Intracomm, progress: Progress = NO_PROGRESS, *, learns: bool
) -> tuple[MemoryFormat, str]:
    """Return the memory format in which the slowest rank is faster, and the reason.

    All ranks must call it. Each rank times the layers of its stages in both formats, interleaved.
    Equal layers are timed once. Tiles are computed with their halos.

    Args:
        plan: The model over the ranks.
        world: All ranks of the plan.
        progress: The progress over the rounds of layers.
        learns: Whether backward passes count, too.
    """
    local_seconds = _time_formats(plan, world, progress, learns=learns)
    release_memory()
    contiguous_seconds, channels_last_seconds = (
        max(rank_seconds) for rank_seconds in zip(*world.allgather(local_seconds), strict=True)
    )
    faster: MemoryFormat = "contiguous"
    if channels_last_seconds < MAX_TIME_RATIO * contiguous_seconds:
        faster = "channels_last"
    reason = (
        "layers of a micro-batch, on the slowest rank: "
        f"channels_last {format_duration(channels_last_seconds)}, "
        f"contiguous {format_duration(contiguous_seconds)}"
    )
    return faster, reason


def _time_formats(
    plan: ModelPlan, world: MPI.Intracomm, progress: Progress, *, learns: bool
) -> tuple[float, float]:
    """Return the seconds of a micro-batch in a rank's layers, in each format.

    A step of the progress is a round of a layer.
    """
    seconds_by_layer_key: dict[object, tuple[float, float]] = {}
    contiguous_seconds = 0.0
    channels_last_seconds = 0.0
    stage_coordinates = plan.layout.list_coordinates(world.rank)
    ranges = list_layer_ranges(plan.balance)
    layer_count = sum(
        last - first
        for first, last in (ranges[coordinates.stage] for coordinates in stage_coordinates)
    )
    progress.begin(layer_count * (ROUNDS + 1))
    for coordinates in stage_coordinates:
        with _open_tiling(plan, world, coordinates) as tiling:
            for section in _list_sections(plan, coordinates, tiling):
                layer_key = section.make_layer_key(plan.model)
                if layer_key in seconds_by_layer_key:
                    progress.advance((ROUNDS + 1) * section.length)
                else:
                    seconds_by_layer_key[layer_key] = _time_section(
                        plan, section, progress, learns=learns
                    )
                contiguous_seconds += seconds_by_layer_key[layer_key][0]
                channels_last_seconds += seconds_by_layer_key[layer_key][1]
    return contiguous_seconds, channels_last_seconds


@contextmanager
def _open_tiling(
    plan: ModelPlan, world: MPI.Intracomm, coordinates: RankCoordinates
) -> Iterator[Tiling | None]:
    """Yield the tiles of a stage, freed at the end; None for whole images."""
    stage = plan.layout.stages[coordinates.stage]
    image = plan.model.image
    if not stage.spatial:
        yield None
        return
    ranks = plan.layout.list_stage_ranks(
        coordinates.stage, coordinates.replica, coordinates.direction
    )
    comm = create_group(world, ranks)
    yield Tiling.of_grid(comm, stage.grid, image.height, image.width, transport=plan.transport)
    comm.Free()


def _list_sections(
    plan: ModelPlan, coordinates: RankCoordinates, tiling: Tiling | None
) -> list[_Section]:
    """Return the layers of a stage one by one, or together if tiles may end in them."""
    first, last = list_layer_ranges(plan.balance)[coordinates.stage]
    if tiling is not None and isinstance(plan.model, ImportedModel):
        return [_Section((first, last), tiling)]
    return [_Section((index, index + 1), tiling) for index in range(first, last)]


def _time_section(
    plan: ModelPlan,
    section: _Section,
    progress: Progress,
    *,
    learns: bool,
) -> tuple[float, float]:
    """Return the seconds of some layers in each format: medians of interleaved rounds.

    The first round is dropped.
    """
    with note_activity(f"{section.describe(plan.model)} measured"):
        layers_by_format = {
            memory_format: _TimedLayers(plan, section, memory_format) for memory_format in _FORMATS
        }
        alternatives = {
            memory_format: partial(timed_layers.seconds, learns)
            for memory_format, timed_layers in layers_by_format.items()
        }
        seconds_by_format = time_alternatives(
            alternatives, rounds=ROUNDS, progress=progress, steps=section.length
        )
        for timed_layers in layers_by_format.values():
            timed_layers.free()
    return seconds_by_format["contiguous"], seconds_by_format["channels_last"]


class _TimedLayers:
    """Some layers on a micro-batch of random maps, in one memory format."""

    def __init__(self, plan: ModelPlan, section: _Section, memory_format: MemoryFormat) -> None:
        mixed = plan.precision.mixed
        self._device = plan.device
        self._tiling = section.tiling
        self._products = MixedProducts(plan.precision.work, plan.device) if mixed else nullcontext()
        dtype = plan.precision.weights
        self._layers: nn.Module = build_stage(
            plan.model,
            *section.layers,
            section.builder,
            seed=plan.seed,
            device=plan.device,
            dtype=dtype,
        )
        set_memory_format(self._layers, memory_format)
        input_dtype = plan.precision.work if mixed else dtype
        maps = tuple(_random_maps(plan, section, input_dtype))
        self._inputs = tuple(
            tensor.detach().requires_grad_() for tensor in convert_maps(maps, memory_format)
        )

    def seconds(self, learns: bool) -> float:
        """Return the seconds of a forward pass, and if it learns, of a backward pass."""
        if self._tiling is not None:
            synchronize_stream(self._device)
            self._tiling.comm.Barrier()
        laps = LapTimer(self._device)
        with self._products, torch.set_grad_enabled(learns):
            outputs = time_forward(self._layers, self._inputs, laps)
        if learns:
            time_backward(outputs, list(map(torch.ones_like, outputs)), laps)
        return sum(laps.seconds())

    def free(self) -> None:
        """Free the buffers of halo exchanges. All ranks of the tiles must call it."""
        free_operators(self._layers)


def _random_maps(plan: ModelPlan, section: _Section, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Yield random inputs of the layers, or this rank's tiles of them."""
    images = max(batch.size for batch in plan.batches)
    random = torch.Generator().manual_seed(plan.seed)
    for shape in plan.model.flows[section.layers[0]]:
        size = images, shape.channels, *section.local_shape(shape)
        yield torch.randn(size, generator=random).to(plan.device, dtype)
