"""Training of models in one process, the reference of programs over ranks."""

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
    """Random images with the same pixels in each requested part."""

    shape: tuple
    count: int
    dtype: torch.dtype

    def load_replica(self, replica):
        generator = torch.Generator().manual_seed(100 + replica)
        images = torch.randn((self.count, *self.shape), generator=generator)
        return images.to(self.dtype), torch.randint(CLASSES, (self.count,), generator=generator)

    def pixels(self, replica, images, box):
        pixels, _ = self.load_replica(replica)
        return cut_tile(pixels[slice(*images)], box).clone()

    step = 0

    def targets(self, replica, images, box):
        return self.load_replica(replica)[1][slice(*images)]


def cut_tile(images, box):
    """Return a tile of images."""
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


def make_plan(network, layout, batches, **options):
    """Return a plan with stages that are balanced by multiply-adds."""
    costs = [float(count.multiply_adds) for count in network.counts]
    balance = balance_layers(costs, [stage.rank_count for stage in layout.stages])
    return ModelPlan(network, layout, balance, batches, **options)


def train_sequentially(
    network, batches, make_optimizer, *, dtype, seed, steps, decay=1.0, replicas=1
):
    """Train replicas in one process; return losses, gradients and other tensors.

    Each step takes all micro-batches in their order, averages the gradients of the replicas, and
    multiplies the learning rate by ``decay``. ``make_optimizer`` takes the parameters.
    """
    count = sum(batch.size for batch in batches)
    source = RandomImages(network.image.shape, count, dtype)

    def build():
        return build_stage(network, 0, len(network.layers), DenseBuilder(), seed=seed, dtype=dtype)

    copies = [build() for _ in range(replicas)]
    optimizers = [make_optimizer(copy.parameters()) for copy in copies]
    results: dict[str, Any] = {"loss": [], "input": {}, "statistics": {}, "logits": {}}
    for _ in range(steps):
        losses = []
        for replica, copy in enumerate(copies):
            images, classes = source.load_replica(replica)
            copy.zero_grad()
            for index, batch in enumerate(batches):
                data = images[slice(*batch.images)].clone().requires_grad_()
                targets = classes[slice(*batch.images)]
                logits = copy(data).to(torch.promote_types(dtype, torch.float32))
                loss = functional.cross_entropy(logits, targets, reduction="sum") / count
                loss.backward()
                losses.append(float(loss.detach()))
                results["input"][replica, index] = data.grad
        results["loss"].append(sum(losses) / replicas)
        for same in zip(*(copy.parameters() for copy in copies), strict=True):
            mean = sum(parameter.grad for parameter in same) / replicas
            for parameter in same:
                parameter.grad = mean.clone()
        results["gradients"] = copy_gradients(copies[0])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= decay
    results["weights"] = read_weights(copies[0])
    for replica, copy in enumerate(copies):
        results["statistics"][replica] = read_statistics(copy)
        images, _ = source.load_replica(replica)
        with torch.no_grad():
            for index, batch in enumerate(batches):
                logits = copy.eval()(images[slice(*batch.images)])
                results["logits"][replica, index] = logits
    return results


def copy_gradients(module):
    return {name: parameter.grad.clone() for name, parameter in module.named_parameters()}


def read_weights(module):
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


def read_statistics(module):
    """Return the running statistics, and the number of batches that they cover."""
    return {
        name: value
        for name, value in module.named_buffers()
        if "running" in name or "tracked" in name
    }


def compute_largest_error(values, expected, among=None):
    """Return the largest difference, relative to the largest value of the kind.

    A NaN counts as an infinite error. ``among`` has all values of the kind; the default is those of
    ``expected``.
    """
    among = expected.values() if among is None else among
    largest = max(float(value.abs().max()) for value in among if value.numel())
    worst = 0.0
    for name, value in values.items():
        reference = expected[name]
        if value.shape != reference.shape:
            raise AssertionError(f"{name}: {tuple(value.shape)} is not {tuple(reference.shape)}")
        if value.numel():
            error = float((value - reference).abs().max()) / largest
            worst = max(worst, error if error == error else float("inf"))
    return worst


def patch_lost_gradients(comm):
    """Inject a fault: the last rank sends zeros instead of gradients."""
    original_send = stage_runner.StageRunner._send

    def send(self, end, tensors):
        if end is not None and end is self.io.input_gradients:
            tensors = [torch.zeros_like(tensor) for tensor in tensors]
        original_send(self, end, tensors)

    is_last = comm.rank == comm.size - 1
    return patch.object(stage_runner.StageRunner, "_send", send if is_last else original_send)
