"""Trains models with fused layers, and compares them with one process.

    mpirun -n 6 python -m mpi4py fuse_models.py CASES.json RESULTS.json

The cases are those of `tests/mpi/test_fused_models.py`. A result has an entry per rank: the number
of ``messages`` that it sent for halos and their gradients, and ``errors``, the largest error by
kind of tensor, relative to the largest value of the kind; or ``{"exception": ...}``. All is in
float64. A fault is injected on all ranks.
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
    compute_largest_error,
    copy_gradients,
    cut_tile,
    make_layout,
    make_network,
    read_statistics,
    train_sequentially,
)

SEED = 1
IMAGES = 3
KEYS = "model", "config", "image", "mirrored"


def make_case_plan(case):
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
def train_on_one_rank(case_text, batches):
    """Return the results by kind of one process that keeps its weights."""
    network = make_network(json.loads(case_text))
    make_optimizer = partial(torch.optim.SGD, lr=0.0)
    results = train_sequentially(
        network, batches, make_optimizer, dtype=torch.float64, seed=SEED, steps=1
    )
    by_batch = {
        kind: {index: tensor for (_, index), tensor in results[kind].items()}
        for kind in ("input", "logits")
    }
    state = {"gradients": results["gradients"], "statistics": results["statistics"][0]}
    return by_batch | state | {"loss": results["loss"][0]}


def compare(case, comm):
    plan = make_case_plan(case)
    messages_before = COMM_STATS.messages
    # At a rate of zero, the weights do not change, so that the evaluation has the same weights.
    config = TrainingConfig("sgd", learning_rate=0.0)
    source = RandomImages(plan.model.image.shape, IMAGES, torch.float64)
    run = Engine(comm, plan, source, config, keeps_input_gradients=True)
    run.step()
    messages = COMM_STATS.messages - messages_before
    case_text = json.dumps({key: case[key] for key in KEYS})
    expected = dict(make_on_first_rank(comm, lambda: train_on_one_rank(case_text, plan.batches)))
    loss = expected.pop("loss")
    errors = {"loss": abs(run.loss() - loss) / loss} | dict.fromkeys(expected, 0.0)

    def record_error(kind, values, reference):
        error = compute_largest_error(values, reference, expected[kind].values())
        errors[kind] = max(errors[kind], error)

    _, height, width = plan.model.image.shape
    for coordinates, stage, runner in zip(run.coordinates, run.stages, run.runners, strict=True):
        record_error("gradients", copy_gradients(stage), expected["gradients"])
        record_error("statistics", read_statistics(stage), expected["statistics"])
        box = plan.layout.stages[coordinates.stage].grid.tile(coordinates.tile, height, width)
        tiles = {index: cut_tile(tensor, box) for index, tensor in expected["input"].items()}
        record_error("input", runner.image_gradients, tiles)
    record_error("logits", run.evaluate(), expected["logits"])
    run.free()
    return {"errors": errors, "messages": messages}


def negate_halo(received):
    for piece in received:
        piece.neg_()


def pad_with_ones(pixels, widths, value):
    return functional.pad(pixels, widths, value=value + 1)


def compute_moments_of_all_pixels(tiling, pixels, _):
    """Return moments that include copied pixels, like MPI4DL's halo D2."""
    axes = (0, 2, 3)
    mean = pixels.mean(axes, keepdim=True)
    count = pixels.numel() // pixels.shape[1]
    return Moments(mean.flatten(), (pixels - mean).square().mean(axes), count)


FAULTS: dict[str | None, Any] = {
    None: nullcontext,
    "corrupted-halo": lambda: patch.object(Gather, "fault_hook", staticmethod(negate_halo)),
    "no-mask": lambda: patch.object(graph_blocks, "pad", pad_with_ones),
    "copies-counted": lambda: patch.object(norm, "compute_moments", compute_moments_of_all_pixels),
}


def compare_with_fault(case, comm):
    with FAULTS[case["fault"]]():
        return compare(case, comm)


def main():
    torch.set_num_threads(1)
    run_each_case(lambda case: make_layout(case).rank_count, return_exceptions(compare_with_fault))


main()
