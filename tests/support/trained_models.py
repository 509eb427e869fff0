"""Models that programs train over ranks, what one process makes of them, and the difference."""

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional

from spbench_core.layout.balance import balance_layers
from spbench_core.layout.stages import build_layout
from spbench_core.layout.tiles import Grid, parse_pair
from spbench_core.models.registry import make_model
from spbench_parallel.models.build import build_stage
from spbench_parallel.models.builders import DenseBuilder
from spbench_parallel.pipeline import stage_runner
from spbench_parallel.plan import ModelPlan

CLASSES = 5
LAYOUT_KEYS = "members", "replicas", "mirrored", "rounds"


@dataclass(frozen=True)
class RandomImages:
    """Images of a seed, the same whatever part of them is asked for."""

    shape: tuple
    count: int
    dtype: torch.dtype

    def all_of(self, replica):
        generator = torch.Generator().manual_seed(100 + replica)
        images = torch.randn((self.count, *self.shape), generator=generator)
        return images.to(self.dtype), torch.randint(CLASSES, (self.count,), generator=generator)

    def pixels(self, replica, images, box):
        found, _ = self.all_of(replica)
        return cut_tile(found[slice(*images)], box).clone()

    step = 0

    def targets(self, replica, images, box):
        return self.all_of(replica)[1][slice(*images)]


def cut_tile(images, box):
    """A tile of images."""
    return images[:, :, slice(*box.rows), slice(*box.cols)]


def make_layout(case):
    grids = [Grid(*parse_pair(grid)) for grid in case.get("grids", ())]
    return build_layout(
        case["stages"], grids, **{key: case[key] for key in LAYOUT_KEYS if key in case}
    )


def make_network(case):
    return make_model(
        case["model"], image_size=case["image"], num_classes=CLASSES, **case["config"]
    )


def make_plan(network, layout, batches, **more):
    """A plan whose stages have layers by their multiply-adds."""
    costs = [float(count.multiply_adds) for count in network.counts]
    balance = balance_layers(costs, [stage.ranks for stage in layout.stages])
    return ModelPlan(network, layout, balance, batches, **more)


def train_sequentially(
    network, batches, optimizer_of, *, dtype, seed, steps, slower=1.0, replicas=1
):
    """Results of training in one process, by kind: of each replica, whose gradients' mean is taken.

    ``optimizer_of`` makes the optimizer of parameters. Each step takes all micro-batches in their
    order, and multiplies the learning rate by ``slower``.
    """
    count = sum(batch.size for batch in batches)
    source = RandomImages(network.image.shape, count, dtype)

    def build():
        return build_stage(network, 0, len(network.layers), DenseBuilder(), seed=seed, dtype=dtype)

    copies = [build() for _ in range(replicas)]
    optimizers = [optimizer_of(copy.parameters()) for copy in copies]
    found: dict[str, Any] = {"loss": [], "input": {}, "statistics": {}, "logits": {}}
    for _ in range(steps):
        losses = []
        for replica, copy in enumerate(copies):
            images, classes = source.all_of(replica)
            copy.zero_grad()
            for index, batch in enumerate(batches):
                data = images[slice(*batch.images)].clone().requires_grad_()
                wanted = classes[slice(*batch.images)]
                logits = copy(data).to(torch.promote_types(dtype, torch.float32))
                loss = functional.cross_entropy(logits, wanted, reduction="sum") / count
                loss.backward()
                losses.append(float(loss.detach()))
                found["input"][replica, index] = data.grad
        found["loss"].append(sum(losses) / replicas)
        for several in zip(*(copy.parameters() for copy in copies), strict=True):
            mean = sum(parameter.grad for parameter in several) / replicas
            for parameter in several:
                parameter.grad = mean.clone()
        found["gradients"] = copy_gradients(copies[0])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= slower
    found["weights"] = read_weights(copies[0])
    for replica, copy in enumerate(copies):
        found["statistics"][replica] = read_statistics(copy)
        images, _ = source.all_of(replica)
        with torch.no_grad():
            for index, batch in enumerate(batches):
                logits = copy.eval()(images[slice(*batch.images)])
                found["logits"][replica, index] = logits
    return found


def copy_gradients(module):
    return {name: one.grad.clone() for name, one in module.named_parameters()}


def read_weights(module):
    return {name: one.detach() for name, one in module.named_parameters()}


def read_statistics(module):
    """Running statistics, and how many batches they are of."""
    return {
        name: value
        for name, value in module.named_buffers()
        if "running" in name or "tracked" in name
    }


def largest_error(found, expected, among=None):
    """The largest difference, over the largest value of the kind; infinite where one has NaN.

    ``among`` has all values of the kind; without it they are those of ``expected``.
    """
    among = expected.values() if among is None else among
    largest = max(float(value.abs().max()) for value in among if value.numel())
    worst = 0.0
    for name, value in found.items():
        wanted = expected[name]
        if value.shape != wanted.shape:
            raise AssertionError(f"{name}: {tuple(value.shape)} is not {tuple(wanted.shape)}")
        if value.numel():
            error = float((value - wanted).abs().max()) / largest
            worst = max(worst, error if error == error else float("inf"))
    return worst


def patch_lost_gradients(comm):
    """A fault: the last rank sends zeros in place of gradients."""
    right = stage_runner.StageRunner._send

    def send(self, end, tensors):
        back = end is not None and end is self.io.input_gradients
        right(self, end, [torch.zeros_like(one) for one in tensors] if back else tensors)

    last = comm.rank == comm.size - 1
    return patch.object(stage_runner.StageRunner, "_send", send if last else right)
