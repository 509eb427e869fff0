"""Trains models whose layers share halo exchanges, and says how far they are from one process.

    mpirun -n 6 python -m mpi4py fuse_models.py CASES.json RESULTS.json

A case is a dictionary as `tests/mpi/test_fused_models.py` makes them. A result has one answer a
rank: ``messages`` that it has sent for halos and their gradients, and by kind of tensor the largest
error, over the largest value of its kind; or ``{"exception": ...}``. All is in float64. A fault
makes something wrong on all ranks.
"""

import json
from contextlib import nullcontext
from functools import cache
from unittest.mock import patch

import torch
from each_case import answer_each, made_by_first, or_exception
from torch.nn import functional

from spbench_core.layout.micro_batches import micro_batches
from spbench_core.layout.stages import model_layout
from spbench_core.layout.tiles import Grid, parse_pair
from spbench_core.models.registry import model
from spbench_workers.models.build import build_stage
from spbench_workers.models.builders import DenseBuilder
from spbench_workers.parallel.engine import Engine
from spbench_workers.parallel.plan import ModelPlan, TrainingConfig
from spbench_workers.parallel.precision.formats import FP64
from spbench_workers.spatial import norm
from spbench_workers.spatial.comm_stats import COMM_STATS
from spbench_workers.spatial.fused import graph_blocks
from spbench_workers.spatial.gather import Gather
from spbench_workers.spatial.moments import Moments

CLASSES, SEED, IMAGES = 5, 1, 3
KEYS = "model", "config", "image", "mirrored"


class RandomImages:
    """Images of a seed, the same whatever part of them is asked for."""

    def __init__(self, shape):
        generator = torch.Generator().manual_seed(SEED)
        self.images = torch.randn((IMAGES, *shape), generator=generator, dtype=torch.float64)
        self.labels = torch.randint(CLASSES, (IMAGES,), generator=generator)

    def pixels(self, _, images, box):
        return cut(self.images[slice(*images)], box).clone()

    def classes(self, _, images):
        return self.labels[slice(*images)]


def cut(tensor, box):
    return tensor[:, :, slice(*box.rows), slice(*box.cols)]


def network_of(case):
    return model(case["model"], image_size=case["image"], num_classes=CLASSES, **case["config"])


def layout_of(case):
    grids = [Grid(*parse_pair(grid)) for grid in case["grids"]]
    return model_layout(len(case["balance"]), grids, mirrored=case["mirrored"])


def plan_of(case):
    return ModelPlan(
        network_of(case),
        layout_of(case),
        tuple(case["balance"]),
        micro_batches(IMAGES, 1 if case["mirrored"] else 2, mirrored=case["mirrored"]),
        seed=SEED,
        precision=FP64,
        transport="packed",
        statistics=case["statistics"],
        fused_layers=case["fused_layers"],
    )


@cache
def whole(words, batches):
    """What one process makes of the same micro-batches, in their order."""
    network = network_of(json.loads(words))
    source, builder = RandomImages(network.image.shape), DenseBuilder()
    stage = build_stage(network, 0, len(network.layers), builder, seed=SEED, dtype=torch.float64)
    inputs, loss = {}, 0.0
    for index, batch in enumerate(batches):
        inputs[index] = source.images[slice(*batch.images)].clone().requires_grad_()
        logits, classes = stage(inputs[index]), source.labels[slice(*batch.images)]
        share = functional.cross_entropy(logits, classes, reduction="sum") / IMAGES
        share.backward()
        loss += float(share.detach())
    found = {"input": {index: one.grad for index, one in inputs.items()}} | state_of(stage)
    with torch.no_grad():
        found["logits"] = {index: stage.eval()(one) for index, one in inputs.items()}
    return found | {"loss": loss}


def state_of(stage):
    return {
        "gradients": {name: one.grad.clone() for name, one in stage.named_parameters()},
        "statistics": {name: one for name, one in stage.named_buffers() if "running" in name},
    }


def compare(case, comm):
    plan, before = plan_of(case), COMM_STATS.messages
    # At a rate of zero nothing is learnt: what is inferred afterwards is of the same weights.
    learning = TrainingConfig("sgd", learning_rate=0.0)
    source = RandomImages(plan.model.image.shape)
    run = Engine(comm, plan, source, learning, keeps_input_gradients=True)
    run.step()
    messages = COMM_STATS.messages - before
    words = json.dumps({key: case[key] for key in KEYS})
    expected = dict(made_by_first(comm, lambda: whole(words, plan.batches)))
    loss = expected.pop("loss")
    errors = {"loss": abs(run.loss() - loss) / loss} | dict.fromkeys(expected, 0.0)

    def note(kind, found, wanted):
        largest = max(float(one.abs().max()) for one in expected[kind].values())
        for name, one in found.items():
            if one.shape != wanted[name].shape:
                raise AssertionError(f"{name}: {one.shape} is not {wanted[name].shape}")
            if one.numel():
                error = float((one - wanted[name]).abs().max()) / largest
                errors[kind] = max(errors[kind], error if error == error else float("inf"))

    _, height, width = plan.model.image.shape
    for place, stage, runner in zip(run.places, run.stages, run.runners, strict=True):
        for kind, found in state_of(stage).items():
            note(kind, found, expected[kind])
        box = plan.layout.stages[place.stage].grid.tile(place.tile, height, width)
        tiles = {index: cut(one, box) for index, one in expected["input"].items()}
        note("input", runner.image_gradients, tiles)
    note("logits", run.evaluate(), expected["logits"])
    run.free()
    return {"errors": errors, "messages": messages}


def flipped(received):
    """The halo with its sign changed."""
    for one in received:
        one.neg_()


def padded_with_ones(pixels, beyond, value):
    return functional.pad(pixels, beyond, value=value + 1)


def moments_of_held(tiling, pixels, held):
    """Moments in which copies count, as in MPI4DL's halo D2."""
    axes = (0, 2, 3)
    mean = pixels.mean(axes, keepdim=True)
    count = pixels.numel() // pixels.shape[1]
    return Moments(mean.flatten(), (pixels - mean).square().mean(axes), count)


FAULTS = {
    None: nullcontext,
    "corrupted-halo": lambda: patch.object(Gather, "spoil", staticmethod(flipped)),
    "no-mask": lambda: patch.object(graph_blocks, "pad", padded_with_ones),
    "copies-counted": lambda: patch.object(norm, "moments_over", moments_of_held),
}


def with_fault(case, comm):
    with FAULTS[case["fault"]]():
        return compare(case, comm)


def main():
    torch.set_num_threads(1)
    answer_each(lambda case: layout_of(case).ranks, or_exception(with_fault))


main()
