"""Trains models over many ranks, and says how far they are from the model on one.

    mpirun -n 4 python -m mpi4py train_all.py CASES.json RESULTS.json

A case is a dictionary as `tests/mpi/test_parallel.py` makes them. A result has one answer a rank:
by kind of tensor the largest error, over the largest value of its kind; or ``{"exception": ...}``.
The model on one rank takes the same micro-batches in the same order. A fault
makes something wrong on the last rank.
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
    copy_gradients,
    cut_tile,
    largest_error,
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
SLOWER = 0.5
OPTIMIZERS: dict[str, Any] = {
    "sgd": partial(torch.optim.SGD, momentum=MOMENTUM),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def plan_of_case(case):
    return make_plan(
        make_network(case),
        make_layout(case),
        batches_of(case),
        schedule=case["schedule"],
        seed=SEED,
        precision=Precision(case["dtype"], dtype_of(case), dtype_of(case)),
        transport="packed",
        backend=case["backend"],
        master_comm=case["one_way"],
    )


def batches_of(case):
    return split_batch(case["batch"], case["parts"], mirrored=case["mirrored"], times=case["times"])


def dtype_of(case):
    return getattr(torch, case["dtype"])


@cache
def on_one_rank(words, batches, replicas):
    case = json.loads(words)
    return train_sequentially(
        make_network(case),
        batches,
        partial(OPTIMIZERS[case["optimizer"]], lr=RATE, weight_decay=DECAY),
        dtype=dtype_of(case),
        seed=SEED,
        steps=STEPS,
        decay=SLOWER,
        replicas=replicas,
    )


def share_of(tensor, batch, stage, place, *, tiled):
    """A rank's part of a micro-batch's tensor."""
    first, last = batch.member_images(place.member, stage.members)
    images = tensor[first - batch.images[0] : last - batch.images[0]]
    if not tiled:
        return images
    return cut_tile(images, stage.grid.tile(place.tile, *tensor.shape[2:]))


def compare(case, comm):
    plan = plan_of_case(case)
    count = sum(batch.size for batch in plan.batches)
    source = RandomImages(plan.model.image.shape, count, plan.dtype)
    learning = TrainingConfig(case["optimizer"], RATE, DECAY, SLOWER)
    with planted(case["fault"], comm):
        run = engine.Engine(comm, plan, source, learning, keeps_input_gradients=True)
        losses = []
        for _ in range(STEPS):
            run.step()
            run.end_epoch()
            losses.append(run.loss())
    words = json.dumps({key: case[key] for key in KEYS})
    expected = make_on_first_rank(comm, lambda: on_one_rank(words, plan.batches, case["replicas"]))
    errors = {
        "loss": max(abs(a - b) / b for a, b in zip(losses, expected["loss"], strict=True)),
        **dict.fromkeys(("input", "gradients", "statistics", "weights", "logits"), 0.0),
    }

    def note(kind, found, wanted, among=None):
        errors[kind] = max(errors[kind], largest_error(found, wanted, among))

    owners = [plan.owner] if plan.master_comm else plan.layout.directions
    for place, stage, runner in zip(run.coordinates, run.stages, run.runners, strict=True):
        own = plan.layout.stages[place.stage]
        if place.direction in owners:
            note("gradients", copy_gradients(stage), expected["gradients"])
        note("weights", read_weights(stage), expected["weights"])
        note("statistics", read_statistics(stage), expected["statistics"][place.replica])
        if place.stage == 0:
            images = {
                index: share_of(
                    expected["input"][place.replica, index], batch, own, place, tiled=True
                )
                for index, batch in enumerate(plan.batches)
                if batch.direction == place.direction
            }
            inputs = {index: runner.image_gradients[index] for index in images}
            note("input", inputs, images, expected["input"].values())
    if case["fault"] is None:
        check_owners(run, owners, comm.rank)
    found = run.evaluate()
    for place in run.coordinates:
        if place.stage < len(plan.layout.stages) - 1:
            continue
        own = plan.layout.stages[place.stage]
        wanted = {
            index: share_of(
                expected["logits"][place.replica, index], batch, own, place, tiled=False
            )
            for index, batch in enumerate(plan.batches)
            if batch.direction == place.direction
        }
        logits = {index: found[index] for index in wanted}
        note("logits", logits, wanted, expected["logits"].values())
    run.free()
    return errors


def check_owners(run, owners, rank):
    """The optimizer keeps something of owned weights alone; and what is sent one way is counted."""
    plan = run.plan
    sent = 0
    for place, stage in zip(run.coordinates, run.stages, strict=True):
        parameters = list(stage.parameters())
        kept = {bool(run.trainer.optimizer_state(parameter)) for parameter in parameters}
        assert kept == {place.direction in owners}, (place, kept)
        if not plan.master_comm:
            continue
        holders = [plan.layout.list_stage_ranks(place.stage, place.replica, way) for way in (0, 1)]
        if not all(rank in ranks for ranks in holders):
            sent += STEPS * sum(parameter.nbytes for parameter in parameters)
    assert run.trainer.traffic.master_comm_bytes == sent, (run.trainer.traffic, sent)


def planted(fault, comm):
    """Make the last rank do something wrong, or all ranks where they must do it together."""
    if fault == "unsummed":
        return patch.object(gradients.WeightSharing, "sum", lambda _: None)
    if fault == "unmirrored":
        return patch.object(MirroredStatistics, "decay_until", lambda *_: None)
    if fault == "own-statistics":
        return patch.object(building, "SyncDenseBuilder", lambda _: DenseBuilder())
    if fault == "gradients-not-sent":
        nothing: Any = dict.fromkeys(("send_gradients", "add_gradients"), lambda _: None)
        return patch.multiple(master_comm.MasterComm, **nothing)
    if fault == "weights-not-sent":
        return patch.object(trainer.Trainer, "share_weights", lambda _: None)
    if fault == "lost-gradient":
        return patch_lost_gradients(comm)
    return nullcontext()


def main():
    torch.set_num_threads(1)
    # So small that a stage has several, the last of them not full.
    with patch.object(engine, "Trainer", partial(trainer.Trainer, bucket_numbers=1000)):
        run_each_case(lambda case: make_layout(case).ranks, return_exceptions(compare))


main()
