"""Computes models in all number formats over ranks, and compares with one rank.

    mpirun -n 5 python -m mpi4py compute_in_formats.py CASES.json RESULTS.json

The cases are those of `tests/mpi/test_precision.py`. A result has an entry per rank: errors by kind
of tensor, each the norm of the difference relative to the norm of the reference. The reference is
one rank in the same format for ``in_format``, and float64 for ``exact``.
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
from spbench_parallel.precision.loss_scale import INITIAL_SCALE
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
TRAINING_CONFIG = TrainingConfig("sgd", 0.05, 0.01, 0.5)


def make_case_plan(case):
    return make_plan(
        make_network(case),
        make_layout(case),
        split_batch(BATCH, 2, mirrored=case["mirrored"]),
        seed=SEED,
        precision=PRECISIONS[case["precision"]],
        transport="packed",
    )


def make_images(plan):
    return SyntheticImages(plan.model.image, CLASSES, seed=SEED, dtype=plan.dtype)


def train(engine, plan):
    """Train some steps; return losses, final tensors, and gradients of step 0."""
    losses = []
    results = {"input": {}, "gradients": {}}
    for step in range(STEPS):
        engine.step()
        engine.end_epoch()
        losses.append(engine.loss())
        if step:
            continue
        for runner in engine.runners:
            results["input"] |= runner.image_gradients
        for name, parameter in iterate_named(engine, nn.Module.named_parameters):
            results["gradients"][name] = parameter.grad.clone()
    results["weights"] = {
        name: parameter.detach().clone()
        for name, parameter in iterate_named(engine, nn.Module.named_parameters)
    }
    results["statistics"] = {
        name: buffer.clone()
        for name, buffer in iterate_named(engine, nn.Module.named_buffers)
        if "running" in name
    }
    results["logits"] = evaluate_by_image(engine, plan)
    return results | {"loss": {0: torch.tensor(losses, dtype=torch.float64)}}


def iterate_named(engine, iterate):
    return (pair for stage in engine.stages for pair in iterate(stage))


def infer(engine, plan):
    if plan.precision.int8:
        engine.arithmetic.quantise(engine.calibrate())
    return {"logits": evaluate_by_image(engine, plan)}


def evaluate_by_image(engine, plan):
    """Return the logits by image, because mirrored pipelines have other micro-batches."""
    return {
        image: logits
        for batch, batch_logits in engine.evaluate().items()
        for image, logits in zip(range(*plan.batches[batch].images), batch_logits, strict=True)
    }


def run_model(comm, plan, trains):
    config = TRAINING_CONFIG if trains else None
    engine = Engine(comm, plan, make_images(plan), config, keeps_input_gradients=trains)
    return engine, train(engine, plan) if trains else infer(engine, plan)


@cache
def run_on_one_rank(case_text, precision):
    case = json.loads(case_text)
    case |= {"precision": precision, "stages": 1, "grids": [], "mirrored": False}
    plan = make_case_plan(case)
    engine, results = run_model(MPI.COMM_SELF, plan, case["trains"])
    engine.free()
    return results


def compute_errors(results, expected, plan, coordinates):
    """Return the norm of the difference relative to the reference, by kind."""
    errors = {}
    for kind, tensors in results.items():
        if not tensors:
            continue
        total = sum(float(tensor.double().square().sum()) for tensor in expected[kind].values())
        squared_error = 0.0
        for key, tensor in tensors.items():
            reference = expected[kind][key].double()
            if kind == "input":
                box = plan.layout.stages[0].grid.tile(coordinates.tile, *reference.shape[2:])
                reference = cut_tile(reference, box)
            squared_error += float((tensor.double() - reference).square().sum())
        errors[kind] = (squared_error / total) ** 0.5
    return errors


def compare(case, comm):
    """Train or infer on many ranks, and compare with one rank."""
    plan = make_case_plan(case)
    case_text = json.dumps({key: case[key] for key in ("model", "image", "config", "trains")})
    formats = (case["precision"], "fp64")
    same, exact = make_on_first_rank(
        comm, lambda: [run_on_one_rank(case_text, precision) for precision in formats]
    )
    with inject_fault(case["fault"], comm):
        engine, results = run_model(comm, plan, case["trains"])
    errors = {
        "in_format": compute_errors(results, same, plan, engine.coordinates[0]),
        "exact": compute_errors(results, exact, plan, engine.coordinates[0]),
    }
    result = errors | {
        "bytes": engine.bytes_sent,
        "share": engine.arithmetic.int8_share(),
        "skipped": engine.arithmetic.skipped_steps,
    }
    engine.free()
    return result


def overflow(case, comm):
    """Make a gradient of the last rank infinite in the first of two steps."""
    plan = make_case_plan(case)
    engine = Engine(comm, plan, make_images(plan), TRAINING_CONFIG)
    parameters = [parameter for stage in engine.stages for parameter in stage.parameters()]
    before = [parameter.detach().clone() for parameter in parameters]
    hooks = []
    if comm.rank == comm.size - 1:
        hooks.append(parameters[0].register_hook(lambda gradient: gradient * float("inf")))
    if case["fault"] == "own-decision":
        engine.arithmetic.loss_scale._world = MPI.COMM_SELF
    engine.step()
    for hook in hooks:
        hook.remove()
    result = {
        "halved": engine.arithmetic.scale == INITIAL_SCALE / 2,
        "skipped": engine.arithmetic.skipped_steps,
        "kept": all(torch.equal(a, b) for a, b in zip(before, parameters, strict=True)),
    }
    if case["fault"] is None:
        engine.step()
        result["trained"] = not any(
            torch.equal(a, b) for a, b in zip(before, parameters, strict=True)
        )
        result["skipped_after"] = engine.arithmetic.skipped_steps
    engine.free()
    return result


def inject_fault(fault, comm):
    """Make the last rank send zeros, or all tiles use their own scale."""
    if fault == "own-ranges":
        return patch.object(arithmetic, "merge_ranges", lambda _, ranges: ranges)
    if fault == "lost-gradient":
        return patch_lost_gradients(comm)
    return nullcontext()


def run_case(case, comm):
    return overflow(case, comm) if case["overflows"] else compare(case, comm)


def main():
    torch.set_num_threads(1)
    run_each_case(lambda case: make_layout(case).rank_count, run_case)


main()
