"""Computes models in all number formats over many ranks, and says how far off they are.

    mpirun -n 5 python -m mpi4py compute_in_formats.py CASES.json RESULTS.json

A case is a dictionary as `tests/mpi/test_precision.py` makes them. A result has one answer a rank:
errors by kind of tensor, each the length of the difference over that of what is expected, once
``in_format``, against one rank in the same format, and once ``exact``, against float64.
"""

import json
from contextlib import nullcontext
from functools import cache
from unittest.mock import patch

import torch
from mpi4py import MPI
from torch import nn

from spbench_core.layout.micro_batches import split_batch
from spbench_parallel.engine import Engine
from spbench_parallel.images.synthetic import SyntheticImages
from spbench_parallel.plan import TrainingConfig
from spbench_parallel.precision import arithmetic
from spbench_parallel.precision.formats import PRECISIONS
from spbench_parallel.precision.loss_scale import START
from support.rank_cases import make_on_first_rank, run_each_case
from support.trained_models import (
    CLASSES,
    cut_tile,
    make_layout,
    make_network,
    make_plan,
    patch_lost_gradients,
)

SEED = 1
STEPS = 2
BATCH = 4
LEARNING = TrainingConfig("sgd", 0.05, 0.01, 0.5)


def plan_of_case(case):
    return make_plan(
        make_network(case),
        make_layout(case),
        split_batch(BATCH, 2, mirrored=case["mirrored"]),
        seed=SEED,
        precision=PRECISIONS[case["precision"]],
        transport="packed",
    )


def images_of(plan):
    return SyntheticImages(plan.model.image, CLASSES, seed=SEED, dtype=plan.dtype)


def learn(engine, plan):
    """Learn for some steps; return what came of it, and the gradients of the first."""
    losses = []
    found = {"input": {}, "gradients": {}}
    for step in range(STEPS):
        engine.step()
        engine.end_epoch()
        losses.append(engine.loss())
        if step:
            continue
        for runner in engine.runners:
            found["input"] |= runner.image_gradients
        for name, one in named(engine, nn.Module.named_parameters):
            found["gradients"][name] = one.grad.clone()
    found["weights"] = {
        name: one.detach().clone() for name, one in named(engine, nn.Module.named_parameters)
    }
    found["statistics"] = {
        name: one.clone()
        for name, one in named(engine, nn.Module.named_buffers)
        if "running" in name
    }
    found["logits"] = logits_of(engine, plan)
    return found | {"loss": {0: torch.tensor(losses, dtype=torch.float64)}}


def named(engine, of):
    return (pair for stage in engine.stages for pair in of(stage))


def infer(engine, plan):
    if plan.precision.int8:
        engine.arithmetic.quantise(engine.calibrate())
    return {"logits": logits_of(engine, plan)}


def logits_of(engine, plan):
    """By image: mirrored pipelines have other micro-batches than one rank."""
    return {
        image: one
        for batch, several in engine.evaluate().items()
        for image, one in zip(range(*plan.batches[batch].images), several, strict=True)
    }


def run(comm, plan, learns):
    learning = LEARNING if learns else None
    engine = Engine(comm, plan, images_of(plan), learning, keeps_input_gradients=learns)
    return engine, learn(engine, plan) if learns else infer(engine, plan)


@cache
def on_one_rank(words, precision):
    """The results of one rank."""
    case = json.loads(words) | {"precision": precision, "stages": 1, "grids": [], "mirrored": False}
    plan = plan_of_case(case)
    engine, found = run(MPI.COMM_SELF, plan, case["learns"])
    engine.free()
    return found


def errors_of(found, expected, plan, place):
    """By kind, the length of the difference over that of all that is expected."""
    errors = {}
    for kind, several in found.items():
        if not several:
            continue
        total = sum(float(one.double().square().sum()) for one in expected[kind].values())
        off = 0.0
        for key, one in several.items():
            wanted = expected[kind][key].double()
            if kind == "input":
                box = plan.layout.stages[0].grid.tile(place.tile, *wanted.shape[2:])
                wanted = cut_tile(wanted, box)
            off += float((one.double() - wanted).square().sum())
        errors[kind] = (off / total) ** 0.5
    return errors


def compare(case, comm):
    """Learn, or infer, on many ranks and on one."""
    plan = plan_of_case(case)
    words = json.dumps({key: case[key] for key in ("model", "image", "config", "learns")})
    formats = (case["precision"], "fp64")
    same, exact = make_on_first_rank(comm, lambda: [on_one_rank(words, one) for one in formats])
    with planted(case["fault"], comm):
        engine, found = run(comm, plan, case["learns"])
    answer = {
        "in_format": errors_of(found, same, plan, engine.coordinates[0]),
        "exact": errors_of(found, exact, plan, engine.coordinates[0]),
        "bytes": engine.bytes_sent,
        "share": engine.arithmetic.int8_share(),
        "skipped": engine.arithmetic.skipped_steps,
    }
    engine.free()
    return answer


def overflow(case, comm):
    """Let a gradient of the last rank alone be infinite, in the first of two steps."""
    plan = plan_of_case(case)
    engine = Engine(comm, plan, images_of(plan), LEARNING)
    parameters = [one for stage in engine.stages for one in stage.parameters()]
    before = [one.detach().clone() for one in parameters]
    hooks = []
    if comm.rank == comm.size - 1:
        hooks.append(parameters[0].register_hook(lambda gradient: gradient * float("inf")))
    if case["fault"] == "alone":
        engine.arithmetic.loss_scale._world = MPI.COMM_SELF
    engine.step()
    for hook in hooks:
        hook.remove()
    answer = {
        "halved": engine.arithmetic.scale == START / 2,
        "skipped": engine.arithmetic.skipped_steps,
        "kept": all(torch.equal(a, b) for a, b in zip(before, parameters, strict=True)),
    }
    if case["fault"] is None:
        engine.step()
        answer["learnt"] = not any(
            torch.equal(a, b) for a, b in zip(before, parameters, strict=True)
        )
        answer["skipped_after"] = engine.arithmetic.skipped_steps
    engine.free()
    return answer


def planted(fault, comm):
    """Make the last rank send zeros in place of gradients, or all tiles round by themselves."""
    if fault == "own-ranges":
        return patch.object(arithmetic, "merge_ranges", lambda _, ranges: ranges)
    if fault == "lost-gradient":
        return patch_lost_gradients(comm)
    return nullcontext()


def answer_of(case, comm):
    return overflow(case, comm) if case["overflows"] else compare(case, comm)


def main():
    torch.set_num_threads(1)
    run_each_case(lambda case: make_layout(case).ranks, answer_of)


main()
