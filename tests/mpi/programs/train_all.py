"""Trains models over many ranks, and says how far they are from the model on one.

    mpirun -n 4 python -m mpi4py train_all.py CASES.json RESULTS.json

A case is a dictionary as `tests/mpi/test_parallel.py` makes them. A result has one answer a rank:
by kind of tensor the largest error, over the largest value of its kind; or ``{"exception": ...}``.
The model on one rank takes the same micro-batches in the same order. A fault
makes something wrong on the last rank.
"""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from unittest.mock import patch

import torch
from each_case import answer_each, made_by_first, or_exception
from torch.nn import functional

from spbench_core.layout.balance import balanced
from spbench_core.layout.micro_batches import micro_batches
from spbench_core.layout.stages import model_layout
from spbench_core.layout.tiles import Grid, parse_pair
from spbench_core.models.registry import model
from spbench_workers.models.build import build_stage
from spbench_workers.models.builders import DenseBuilder
from spbench_workers.parallel import engine
from spbench_workers.parallel.pipeline import building, stage_runner
from spbench_workers.parallel.plan import ModelPlan, TrainingConfig
from spbench_workers.parallel.precision.formats import Precision
from spbench_workers.parallel.training import gradients, master_comm, trainer

CLASSES, SEED, STEPS = 5, 1, 2
KEYS = "model", "config", "image", "dtype", "optimizer"
RATE, MOMENTUM, DECAY, SLOWER = 0.05, 0.9, 0.01, 0.5
OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, momentum=MOMENTUM),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


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
        return found[slice(*images), :, slice(*box.rows), slice(*box.cols)].clone()

    def classes(self, replica, images):
        return self.all_of(replica)[1][slice(*images)]


def layout_of(case):
    grids = [Grid(*parse_pair(grid)) for grid in case["grids"]]
    return model_layout(
        case["stages"],
        grids,
        members=case["members"],
        replicas=case["replicas"],
        mirrored=case["mirrored"],
    )


def plan_of(case):
    network = network_of(case)
    layout = layout_of(case)
    costs = [float(count.multiply_adds) for count in network.counts]
    return ModelPlan(
        network,
        layout,
        balanced(costs, [stage.ranks for stage in layout.stages]),
        batches_of(case),
        schedule=case["schedule"],
        seed=SEED,
        precision=Precision(case["dtype"], dtype_of(case), dtype_of(case)),
        transport="packed",
        backend=case["backend"],
        master_comm=case["one_way"],
    )


def batches_of(case):
    return micro_batches(
        case["batch"], case["parts"], mirrored=case["mirrored"], times=case["times"]
    )


def dtype_of(case):
    return getattr(torch, case["dtype"])


def network_of(case):
    return model(case["model"], image_size=case["image"], num_classes=CLASSES, **case["config"])


@cache
def sequential(words, batches, replicas):
    """What training on one rank gives: replica by replica, whose gradients' mean is taken."""
    case = json.loads(words)
    network, dtype = network_of(case), dtype_of(case)
    count = sum(batch.size for batch in batches)
    source = RandomImages(network.image.shape, count, dtype)

    def build():
        return build_stage(network, 0, len(network.layers), DenseBuilder(), seed=SEED, dtype=dtype)

    copies = [build() for _ in range(replicas)]
    optimizers = [
        OPTIMIZERS[case["optimizer"]](copy.parameters(), lr=RATE, weight_decay=DECAY)
        for copy in copies
    ]
    found = {"loss": [], "input": {}, "statistics": {}, "logits": {}}
    for _ in range(STEPS):
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
        found["gradients"] = {
            name: value.grad.clone() for name, value in copies[0].named_parameters()
        }
        for optimizer in optimizers:
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= SLOWER
    found["weights"] = {name: one.detach() for name, one in copies[0].named_parameters()}
    for replica, copy in enumerate(copies):
        found["statistics"][replica] = running(copy)
        images, _ = source.all_of(replica)
        with torch.no_grad():
            for index, batch in enumerate(batches):
                logits = copy.eval()(images[slice(*batch.images)])
                found["logits"][replica, index] = logits
    return found


def running(module):
    return {
        name: value
        for name, value in module.named_buffers()
        if "running" in name or "tracked" in name
    }


def relative(found, expected, among):
    """The largest difference, over the largest value of the kind."""
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


def share_of(tensor, batch, stage, place, *, tiled):
    """A rank's part of a micro-batch's tensor."""
    first, last = batch.share(place.member, stage.members)
    images = tensor[first - batch.images[0] : last - batch.images[0]]
    if not tiled:
        return images
    box = stage.grid.tile(place.tile, *tensor.shape[2:])
    return images[:, :, slice(*box.rows), slice(*box.cols)]


def compare(case, comm):
    plan = plan_of(case)
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
    expected = made_by_first(comm, lambda: sequential(words, plan.batches, case["replicas"]))
    errors = {
        "loss": max(abs(a - b) / b for a, b in zip(losses, expected["loss"], strict=True)),
        **dict.fromkeys(("input", "gradients", "statistics", "weights", "logits"), 0.0),
    }

    def note(kind, found, wanted, among):
        errors[kind] = max(errors[kind], relative(found, wanted, list(among)))

    owners = [plan.owner] if plan.master_comm else plan.layout.directions
    for place, stage, runner in zip(run.places, run.stages, run.runners, strict=True):
        own = plan.layout.stages[place.stage]
        parameters = dict(stage.named_parameters())
        gradients_found = {name: value.grad for name, value in parameters.items()}
        if place.direction in owners:
            wanted = expected["gradients"]
            note("gradients", gradients_found, wanted, wanted.values())
        values = {name: value.detach() for name, value in parameters.items()}
        note("weights", values, expected["weights"], expected["weights"].values())
        statistics = expected["statistics"][place.replica]
        note("statistics", running(stage), statistics, statistics.values())
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
    for place in run.places:
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
    plan, sent = run.plan, 0
    for place, stage in zip(run.places, run.stages, strict=True):
        parameters = list(stage.parameters())
        kept = {bool(run.trainer.state_of(parameter)) for parameter in parameters}
        assert kept == {place.direction in owners}, (place, kept)
        if not plan.master_comm:
            continue
        holders = [plan.layout.ranks_of(place.stage, place.replica, way) for way in (0, 1)]
        if not all(rank in ranks for ranks in holders):
            sent += STEPS * sum(parameter.nbytes for parameter in parameters)
    assert run.trainer.traffic.master_comm_bytes == sent, (run.trainer.traffic, sent)


def planted(fault, comm):
    """Make the last rank do something wrong, or all ranks where they must do it together."""
    if fault == "unsummed":
        return patch.object(gradients.WeightSharing, "sum", lambda _: None)
    if fault == "unmirrored":
        return patch.object(trainer.MirroredStatistics, "pass_others", lambda *_: None)
    if fault == "own-statistics":
        return patch.object(building, "SyncDenseBuilder", lambda _: DenseBuilder())
    if fault == "gradients-not-sent":
        nothing = dict.fromkeys(("send_gradients", "add_gradients"), lambda _: None)
        return patch.multiple(master_comm.MasterComm, **nothing)
    if fault == "weights-not-sent":
        return patch.object(trainer.Trainer, "share", lambda _: None)
    if fault == "lost-gradient" and comm.rank == comm.size - 1:
        return patch.object(stage_runner.StageRunner, "_send", forgetful())
    return nullcontext()


def forgetful():
    """Sends zeros in place of gradients."""
    right = stage_runner.StageRunner._send

    def send(self, end, tensors):
        back = end is not None and end is self.io.input_gradients
        right(self, end, [torch.zeros_like(one) for one in tensors] if back else tensors)

    return send


def main():
    torch.set_num_threads(1)
    # So small that a stage has several, the last of them not full.
    gradients.BUCKET = master_comm.BUCKET = 1000
    answer_each(lambda case: layout_of(case).ranks, or_exception(compare))


main()
