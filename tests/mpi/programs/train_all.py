"""Trains models over many ranks, and compares them with the model on one rank.

    mpirun -n 4 python -m mpi4py train_all.py CASES.json RESULTS.json

The cases are those of `tests/mpi/test_parallel.py`. A result has an entry per rank: the largest
error by kind of tensor, relative to the largest value of the kind, or ``{"exception": ...}``. The
model on one rank takes the same micro-batches in the same order. A fault is injected on the last
rank.
"""

import json
from contextlib import nullcontext
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import torch

from spbench_core.layout.micro_batches import split_batch
from spbench_parallel import engine
from spbench_parallel.models.builders import DenseBuilder
from spbench_parallel.pipeline import building
from spbench_parallel.plan import TrainingConfig
from spbench_parallel.precision.formats import Precision
from spbench_parallel.training import gradients, master_comm, trainer
from spbench_parallel.training.running_statistics import MirroredStatistics
from support.rank_cases import make_on_first_rank, return_exceptions, run_each_case
from support.trained_models import (
    RandomImages,
    compute_largest_error,
    copy_gradients,
    cut_tile,
    make_layout,
    make_network,
    make_plan,
    patch_lost_gradients,
    read_statistics,
    read_weights,
    train_sequentially,
)

SEED = 1
STEPS = 2
KEYS = "model", "config", "image", "dtype", "optimizer"
RATE = 0.05
MOMENTUM = 0.9
DECAY = 0.01
RATE_FACTOR = 0.5
OPTIMIZERS: dict[str, Any] = {
    "sgd": partial(torch.optim.SGD, momentum=MOMENTUM),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def make_case_plan(case):
    return make_plan(
        make_network(case),
        make_layout(case),
        split_case_batch(case),
        schedule=case["schedule"],
        seed=SEED,
        precision=Precision(case["dtype"], get_dtype(case), get_dtype(case)),
        transport="packed",
        backend=case["backend"],
        master_comm=case["one_way"],
    )


def split_case_batch(case):
    return split_batch(case["batch"], case["parts"], mirrored=case["mirrored"], times=case["times"])


def get_dtype(case):
    return getattr(torch, case["dtype"])


@cache
def train_on_one_rank(case_text, batches, replicas):
    case = json.loads(case_text)
    return train_sequentially(
        make_network(case),
        batches,
        partial(OPTIMIZERS[case["optimizer"]], lr=RATE, weight_decay=DECAY),
        dtype=get_dtype(case),
        seed=SEED,
        steps=STEPS,
        decay=RATE_FACTOR,
        replicas=replicas,
    )


def cut_share(tensor, batch, stage, coordinates, *, tiled):
    """Return the part of a rank of the tensor of a micro-batch."""
    first, last = batch.member_images(coordinates.member, stage.members)
    images = tensor[first - batch.images[0] : last - batch.images[0]]
    if not tiled:
        return images
    return cut_tile(images, stage.grid.tile(coordinates.tile, *tensor.shape[2:]))


def compare(case, comm):
    plan = make_case_plan(case)
    count = sum(batch.size for batch in plan.batches)
    source = RandomImages(plan.model.image.shape, count, plan.dtype)
    config = TrainingConfig(case["optimizer"], RATE, DECAY, RATE_FACTOR)
    with inject_fault(case["fault"], comm):
        run = engine.Engine(comm, plan, source, config, keeps_input_gradients=True)
        losses = []
        for _ in range(STEPS):
            run.step()
            run.end_epoch()
            losses.append(run.loss())
    case_text = json.dumps({key: case[key] for key in KEYS})
    expected = make_on_first_rank(
        comm, lambda: train_on_one_rank(case_text, plan.batches, case["replicas"])
    )
    errors = {
        "loss": max(abs(a - b) / b for a, b in zip(losses, expected["loss"], strict=True)),
        **dict.fromkeys(("input", "gradients", "statistics", "weights", "logits"), 0.0),
    }

    def record_error(kind, values, reference, among=None):
        errors[kind] = max(errors[kind], compute_largest_error(values, reference, among))

    owners = [plan.owner] if plan.master_comm else plan.layout.directions
    for coordinates, stage, runner in zip(run.coordinates, run.stages, run.runners, strict=True):
        layout_stage = plan.layout.stages[coordinates.stage]
        if coordinates.direction in owners:
            record_error("gradients", copy_gradients(stage), expected["gradients"])
        record_error("weights", read_weights(stage), expected["weights"])
        record_error(
            "statistics", read_statistics(stage), expected["statistics"][coordinates.replica]
        )
        if coordinates.stage == 0:
            images = {
                index: cut_share(
                    expected["input"][coordinates.replica, index],
                    batch,
                    layout_stage,
                    coordinates,
                    tiled=True,
                )
                for index, batch in enumerate(plan.batches)
                if batch.direction == coordinates.direction
            }
            inputs = {index: runner.image_gradients[index] for index in images}
            record_error("input", inputs, images, expected["input"].values())
    if case["fault"] is None:
        check_owners(run, owners, comm.rank)
    outputs = run.evaluate()
    for coordinates in run.coordinates:
        if coordinates.stage < len(plan.layout.stages) - 1:
            continue
        layout_stage = plan.layout.stages[coordinates.stage]
        reference = {
            index: cut_share(
                expected["logits"][coordinates.replica, index],
                batch,
                layout_stage,
                coordinates,
                tiled=False,
            )
            for index, batch in enumerate(plan.batches)
            if batch.direction == coordinates.direction
        }
        logits = {index: outputs[index] for index in reference}
        record_error("logits", logits, reference, expected["logits"].values())
    run.free()
    return errors


def check_owners(run, owners, rank):
    """Check that only owned weights have optimizer state, and the count of sent bytes."""
    plan = run.plan
    sent_bytes = 0
    for coordinates, stage in zip(run.coordinates, run.stages, strict=True):
        parameters = list(stage.parameters())
        has_state = {bool(run.trainer.optimizer_state(parameter)) for parameter in parameters}
        assert has_state == {coordinates.direction in owners}, (coordinates, has_state)
        if not plan.master_comm:
            continue
        holders = [
            plan.layout.list_stage_ranks(coordinates.stage, coordinates.replica, direction)
            for direction in (0, 1)
        ]
        if not all(rank in ranks for ranks in holders):
            sent_bytes += STEPS * sum(parameter.nbytes for parameter in parameters)
    assert run.trainer.traffic.master_comm_bytes == sent_bytes, (run.trainer.traffic, sent_bytes)


def inject_fault(fault, comm):
    """Inject a fault on the last rank, or on all ranks if they must act together."""
    if fault == "unsummed":
        return patch.object(gradients.WeightGroup, "sum", lambda _: None)
    if fault == "unmirrored":
        return patch.object(MirroredStatistics, "decay_until", lambda *_: None)
    if fault == "own-statistics":
        return patch.object(building, "SyncDenseBuilder", lambda _: DenseBuilder())
    if fault == "gradients-not-sent":
        replacements: Any = dict.fromkeys(("send_gradients", "add_gradients"), lambda _: None)
        return patch.multiple(master_comm.MasterComm, **replacements)
    if fault == "weights-not-sent":
        return patch.object(trainer.Trainer, "share_weights", lambda _: None)
    if fault == "lost-gradient":
        return patch_lost_gradients(comm)
    return nullcontext()


def main():
    torch.set_num_threads(1)
    # Small buckets, so that a stage has several, and the last one is not full.
    with patch.object(engine, "Trainer", partial(trainer.Trainer, bucket_numbers=1000)):
        run_each_case(lambda case: make_layout(case).rank_count, return_exceptions(compare))


main()
