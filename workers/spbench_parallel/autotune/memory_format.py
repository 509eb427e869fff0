"""The memory format in which the stages of a plan are computed faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.durations import time_text
from spbench_core.layout.balance import layer_ranges
from spbench_core.layout.stages import Place
from spbench_core.models.layers import Model
from spbench_core.models.parts import Map
from spbench_parallel.alternatives import time_alternatives
from spbench_parallel.device.failures import note_activity
from spbench_parallel.device.memory import release_memory
from spbench_parallel.device.memory_format import (
    MEMORY_FORMATS,
    MemoryFormat,
    convert_maps,
    set_memory_format,
)
from spbench_parallel.device.streams import synchronize_stream
from spbench_parallel.groups import create_group
from spbench_parallel.layer_times import Laps, backward, forward
from spbench_parallel.models.build import build_stage, free
from spbench_parallel.models.builders import DenseBuilder, ModuleBuilder, SpatialBuilder
from spbench_parallel.models.imported.model import ImportedModel
from spbench_parallel.plan import ModelPlan
from spbench_parallel.precision.formats import MixedProducts
from spbench_parallel.progress import NO_PROGRESS, Progress
from spbench_parallel.spatial.tiling import Tiling

ROUNDS = 3
GAIN = 0.97
"""The most that channels_last may take of the other's time to be taken: a thirtieth is noise."""
_FORMATS: tuple[MemoryFormat, ...] = tuple(MEMORY_FORMATS)


@dataclass(frozen=True, slots=True)
class _Section:
    """Some layers of a stage, and the images that they are computed on.

    Attributes:
        layers: The first layer, and one past the last.
        tiling: The tiles of the image; None where it is whole.
    """

    layers: tuple[int, int]
    tiling: Tiling | None

    @property
    def length(self) -> int:
        """The number of layers."""
        return self.layers[1] - self.layers[0]

    def alike(self, model: Model) -> object:
        """Return what sections have in common that take as long."""
        first, last = self.layers
        layers = model.alike(first) if last == first + 1 else self.layers
        return layers, self.tiling is not None

    def named(self, model: Model) -> str:
        """Return the subject of a sentence on these layers, with its verb."""
        first, last = (model.layers[index].name for index in (self.layers[0], self.layers[1] - 1))
        return f"layer {first} was" if first == last else f"layers {first} to {last} were"

    @property
    def builder(self) -> ModuleBuilder:
        """The builder of its operators."""
        return DenseBuilder() if self.tiling is None else SpatialBuilder(self.tiling)

    def given(self, data: Map) -> tuple[int, int]:
        """Return rows and columns that a rank has of a map."""
        if self.tiling is None:
            return data.height, data.width
        return self.tiling.resized(data.height, data.width).tile.shape


def choose_format(
    plan: ModelPlan, world: MPI.Intracomm, progress: Progress = NO_PROGRESS, *, learns: bool
) -> tuple[MemoryFormat, str]:
    """Return the memory format in which the slowest rank is faster, and the reason.

    All ranks must call it. Each times the layers of its own stages in both formats, interleaved;
    layers that are alike are timed once. Tiles are computed with their halos.

    Args:
        plan: The model over the ranks.
        world: All ranks of the plan.
        progress: The progress over the rounds of layers.
        learns: Whether backward passes count, too.
    """
    own = _seconds(plan, world, progress, learns=learns)
    release_memory()
    contiguous, last = (max(each) for each in zip(*world.allgather(own), strict=True))
    faster: MemoryFormat = "channels_last" if last < GAIN * contiguous else "contiguous"
    reason = (
        "layers of a micro-batch, on the slowest rank: "
        f"channels_last {time_text(last)}, contiguous {time_text(contiguous)}"
    )
    return faster, reason


def _seconds(
    plan: ModelPlan, world: MPI.Intracomm, progress: Progress, *, learns: bool
) -> tuple[float, float]:
    """Return the seconds of a micro-batch in the layers of a rank's stages, in each format.

    A step of the progress is a round of a layer.
    """
    known: dict[object, tuple[float, float]] = {}
    totals = [0.0, 0.0]
    places = plan.layout.places(world.rank)
    ranges = layer_ranges(plan.balance)
    layers = sum(last - first for first, last in (ranges[one.stage] for one in places))
    progress.begin(layers * (ROUNDS + 1))
    for place in places:
        with _tiling_of(plan, world, place) as tiling:
            for section in _sections(plan, place, tiling):
                alike = section.alike(plan.model)
                if alike not in known:
                    known[alike] = _of_section(plan, section, progress, learns=learns)
                else:
                    progress.advance((ROUNDS + 1) * section.length)
                totals = [total + own for total, own in zip(totals, known[alike], strict=True)]
    return totals[0], totals[1]


@contextmanager
def _tiling_of(plan: ModelPlan, world: MPI.Intracomm, place: Place) -> Iterator[Tiling | None]:
    """Give the tiles of a place's stage, for as long as they are needed; None of whole images."""
    stage = plan.layout.stages[place.stage]
    image = plan.model.image
    if not stage.spatial:
        yield None
        return
    ranks = plan.layout.ranks_of(place.stage, place.replica, place.direction)
    comm = create_group(world, ranks)
    yield Tiling.of_grid(comm, stage.grid, image.height, image.width, transport=plan.transport)
    comm.Free()


def _sections(plan: ModelPlan, place: Place, tiling: Tiling | None) -> list[_Section]:
    """Return the layers of a stage one by one; all at once where tiles may end in them."""
    first, last = layer_ranges(plan.balance)[place.stage]
    if tiling is not None and isinstance(plan.model, ImportedModel):
        return [_Section((first, last), tiling)]
    return [_Section((index, index + 1), tiling) for index in range(first, last)]


def _of_section(
    plan: ModelPlan,
    section: _Section,
    progress: Progress,
    *,
    learns: bool,
) -> tuple[float, float]:
    """Return the seconds of some layers in each format: medians of interleaved rounds.

    The first round is dropped.
    """
    with note_activity(f"{section.named(plan.model)} measured"):
        bodies = {each: _Body(plan, section, each) for each in _FORMATS}
        alternatives = {each: partial(body.seconds, learns) for each, body in bodies.items()}
        times = time_alternatives(
            alternatives, rounds=ROUNDS, progress=progress, steps=section.length
        )
        for body in bodies.values():
            body.free()
    return times["contiguous"], times["channels_last"]


class _Body:
    """Some layers on a micro-batch of made-up maps, in one memory format."""

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
        given = plan.precision.work if mixed else dtype
        maps = tuple(_maps(plan, section, given))
        self._inputs = tuple(
            each.detach().requires_grad_() for each in convert_maps(maps, memory_format)
        )

    def seconds(self, learns: bool) -> float:
        """Return the seconds of a forward pass, and where it learns of a backward pass."""
        if self._tiling is not None:
            synchronize_stream(self._device)
            self._tiling.comm.Barrier()
        laps = Laps(self._device)
        with self._products, torch.set_grad_enabled(learns):
            outputs = forward(self._layers, self._inputs, laps)
        if learns:
            backward(outputs, list(map(torch.ones_like, outputs)), laps)
        return sum(laps.seconds())

    def free(self) -> None:
        """Free what exchanges of halos hold. All ranks of the tiles must call it."""
        free(self._layers)


def _maps(plan: ModelPlan, section: _Section, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Yield maps as layers get them, or this rank's tiles of them."""
    images = max(batch.size for batch in plan.batches)
    random = torch.Generator().manual_seed(plan.seed)
    for data in plan.model.flows[section.layers[0]]:
        size = images, data.channels, *section.given(data)
        yield torch.randn(size, generator=random).to(plan.device, dtype)
