"""The memory format in which a case's stages are computed: as asked for, or the faster one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from statistics import median
from typing import Any

import torch
from torch import nn

from spbench_core.layout.balance import layer_ranges
from spbench_workers.context import Context
from spbench_workers.device.failures import while_doing
from spbench_workers.device.memory import give_back
from spbench_workers.device.memory_format import MEMORY_FORMATS, MemoryFormat, laid_out, lay_out
from spbench_workers.models.build import build_stage
from spbench_workers.models.builders import DenseBuilder
from spbench_workers.parallel.layer_times import Laps, backward, forward
from spbench_workers.parallel.plan import ModelPlan
from spbench_workers.parallel.precision.formats import MixedProducts

ROUNDS = 3
GAIN = 0.97
"""The most that channels_last may take of the other's time to be taken: a thirtieth is noise."""
_FORMATS: tuple[MemoryFormat, ...] = tuple(MEMORY_FORMATS)


def chosen_format(context: Context, plan: ModelPlan) -> MemoryFormat:
    """Return the memory format of the parameters, or of ``auto`` the faster one.

    All ranks must call it. Each times the layers of its own stages, layers that are alike once,
    in both formats by turns; of the ranks the slowest counts. Tiles are contiguous: their halos
    are received into buffers that are, and channels_last is 1.05 to 1.3 times slower there.
    """
    asked: Any = context.params["memory_format"]
    if asked != "auto":
        chosen: MemoryFormat = asked or "contiguous"
        return chosen
    if any(stage.spatial for stage in plan.layout.stages):
        if context.world.rank == 0:
            context.choice("memory_format", "contiguous", "as the buffers of tiles' halos are")
        return "contiguous"
    own = _seconds(plan, context.world.rank, learns=not context.params["enable_evaluation"])
    give_back()
    contiguous, last = (max(each) for each in zip(*context.world.comm.allgather(own), strict=True))
    faster: MemoryFormat = "channels_last" if last < GAIN * contiguous else "contiguous"
    if context.world.rank == 0:
        told = f"{last * 1000:.3g} ms, contiguous {contiguous * 1000:.3g} ms"
        reason = f"layers of a micro-batch, on the slowest rank: channels_last {told}"
        context.choice("memory_format", faster, reason)
    return faster


def _seconds(plan: ModelPlan, rank: int, *, learns: bool) -> tuple[float, float]:
    """Return the seconds of a micro-batch in the layers of a rank's stages, in each format."""
    known: dict[object, tuple[float, float]] = {}
    totals = [0.0, 0.0]
    for place in plan.layout.places(rank):
        for index in range(*layer_ranges(plan.balance)[place.stage]):
            alike = plan.model.alike(index)
            if alike not in known:
                known[alike] = _of_layer(plan, index, learns=learns)
            totals = [total + own for total, own in zip(totals, known[alike], strict=True)]
    return totals[0], totals[1]


def _of_layer(plan: ModelPlan, index: int, *, learns: bool) -> tuple[float, float]:
    """Return the seconds of one layer in each format: medians of rounds by turns."""
    layer = plan.model.layers[index]
    with while_doing(f"layer {layer.name} was measured"):
        bodies = [_Body(plan, index, each) for each in _FORMATS]
        rounds = [[body.seconds(learns) for body in bodies] for _ in range(ROUNDS + 1)][1:]
    contiguous, last = (median(times) for times in zip(*rounds, strict=True))
    return contiguous, last


class _Body:
    """A layer on a micro-batch of made-up maps, in one memory format."""

    def __init__(self, plan: ModelPlan, index: int, memory_format: MemoryFormat) -> None:
        mixed = plan.precision.mixed
        self._device = plan.device
        self._products = MixedProducts(plan.precision.work, plan.device) if mixed else nullcontext()
        dtype = plan.precision.weights
        self._layer: nn.Module = build_stage(
            plan.model,
            index,
            index + 1,
            DenseBuilder(),
            seed=plan.seed,
            device=plan.device,
            dtype=dtype,
        )
        lay_out(self._layer, memory_format)
        given = plan.precision.work if mixed else dtype
        maps = tuple(_maps(plan, index, given))
        self._inputs = tuple(
            each.detach().requires_grad_() for each in laid_out(maps, memory_format)
        )

    def seconds(self, learns: bool) -> float:
        """Return the seconds of a forward pass, and where it learns of a backward pass."""
        laps = Laps(self._device)
        with self._products, torch.set_grad_enabled(learns):
            outputs = forward(self._layer, self._inputs, laps)
        if learns:
            backward(outputs, list(map(torch.ones_like, outputs)), laps)
        return sum(laps.seconds())


def _maps(plan: ModelPlan, index: int, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Yield maps as a layer gets them."""
    images = max(batch.size for batch in plan.batches)
    random = torch.Generator().manual_seed(plan.seed)
    for data in plan.model.flows[index]:
        size = images, data.channels, data.height, data.width
        yield torch.randn(size, generator=random).to(plan.device, dtype)
