"""Trains models whose layers share halo exchanges, and says how far they are from one process.

    mpirun -n 6 python -m mpi4py fuse_models.py CASES.json RESULTS.json

A case is a dictionary as `tests/mpi/test_fused_models.py` makes them. A result has one answer a
rank: ``messages`` that it has sent for halos and their gradients, and by kind of tensor the largest
error, over the largest value of its kind; or ``{"exception": ...}``. All is in float64. A fault
makes something wrong on all ranks.
"""

import json
from contextlib import nullcontext
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional

from spbench_core.layout.micro_batches import split_batch
from spbench_parallel.engine import Engine
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.precision.formats import FP64
from spbench_parallel.spatial import norm
from spbench_parallel.spatial.comm_stats import COMM_STATS
from spbench_parallel.spatial.fused import graph_blocks
from spbench_parallel.spatial.gather import Gather
from spbench_parallel.spatial.norm import Moments
from support.rank_cases import make_on_first_rank, return_exceptions, run_each_case
from support.trained_models import (
    RandomImages,
    copy_gradients,
    cut_tile,
    largest_error,
    make_layout,
    make_network,
    read_statistics,
    train_sequentially,
)

SEED = 1
IMAGES = 3
KEYS = "model", "config", "image", "mirrored"


def plan_of_case(case):
    return ModelPlan(
        make_network(case),
        make_layout(case),
        tuple(case["balance"]),
        split_batch(IMAGES, 1 if case["mirrored"] else 2, mirrored=case["mirrored"]),
        seed=SEED,
        precision=FP64,
        transport="packed",
        statistics=case["statistics"],
        fused_layers=case["fused_layers"],
    )


@cache
def on_one_rank(words, batches):
    """Results of one process that learns nothing, by kind, and in the names that a rank has."""
    network = make_network(json.loads(words))
    stay = partial(torch.optim.SGD, lr=0.0)
    found = train_sequentially(network, batches, stay, dtype=torch.float64, seed=SEED, steps=1)
    by_batch = {
        kind: {index: one for (_, index), one in found[kind].items()}
        for kind in ("input", "logits")
    }
    state = {"gradients": found["gradients"], "statistics": found["statistics"][0]}
    return by_batch | state | {"loss": found["loss"][0]}


def compare(case, comm):
    plan = plan_of_case(case)
    before = COMM_STATS.messages
    # At a rate of zero nothing is learnt: what is inferred afterwards is of the same weights.
    learning = TrainingConfig("sgd", learning_rate=0.0)
    source = RandomImages(plan.model.image.shape, IMAGES, torch.float64)
    run = Engine(comm, plan, source, learning, keeps_input_gradients=True)
    run.step()
    messages = COMM_STATS.messages - before
    words = json.dumps({key: case[key] for key in KEYS})
    expected = dict(make_on_first_rank(comm, lambda: on_one_rank(words, plan.batches)))
    loss = expected.pop("loss")
    errors = {"loss": abs(run.loss() - loss) / loss} | dict.fromkeys(expected, 0.0)

    def note(kind, found, wanted):
        error = largest_error(found, wanted, expected[kind].values())
        errors[kind] = max(errors[kind], error)

    _, height, width = plan.model.image.shape
    for place, stage, runner in zip(run.coordinates, run.stages, run.runners, strict=True):
        note("gradients", copy_gradients(stage), expected["gradients"])
        note("statistics", read_statistics(stage), expected["statistics"])
        box = plan.layout.stages[place.stage].grid.tile(place.tile, height, width)
        tiles = {index: cut_tile(one, box) for index, one in expected["input"].items()}
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


FAULTS: dict[str | None, Any] = {
    None: nullcontext,
    "corrupted-halo": lambda: patch.object(Gather, "fault_hook", staticmethod(flipped)),
    "no-mask": lambda: patch.object(graph_blocks, "pad", padded_with_ones),
    "copies-counted": lambda: patch.object(norm, "compute_moments", moments_of_held),
}


def with_fault(case, comm):
    with FAULTS[case["fault"]]():
        return compare(case, comm)


def main():
    torch.set_num_threads(1)
    run_each_case(lambda case: make_layout(case).ranks, return_exceptions(with_fault))


main()
