"""Checks of a model in its own format: bits, products, and a step at full size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from mpi4py import MPI

from spbench_parallel.engine import Engine
from spbench_parallel.full_size.calls import StepErrors
from spbench_parallel.full_size.check import StepCheck
from spbench_parallel.groups import sleep_at_barrier
from spbench_parallel.plan import ModelPlan, TrainingConfig, put_on_one_process
from spbench_parallel.precision.product_errors import compares_products
from spbench_parallel.progress import PhaseProgress
from spbench_parallel.validation.comparison import compare
from spbench_parallel.validation.reference import (
    KINDS,
    STEPS,
    make_synthetic_images,
)
from spbench_parallel.verify.worst_error import WorstError
from spbench_workers.benchmarks.model.validation import ResultParts, collect_parts
from spbench_workers.context import Context


def check_bits(
    context: Context,
    plan: ModelPlan,
    training: TrainingConfig | None,
    inject: Callable[[Context, Engine], None],
) -> None:
    """Compare a pipeline with one process in the same format, bit for bit.

    All ranks must call it. Both compute on the host, because a GPU may add in another order.

    Args:
        context: A case in which the pipeline and one process add in the same order.
        plan: The model, with the micro-batches of the small batch.
        training: None for inference.
        inject: Injects the fault of ``--inject``.
    """
    plan = replace(plan, device=torch.device("cpu"), backend="mpi")
    comm: MPI.Intracomm = context.world.comm
    steps = (1 if training is None else STEPS + 1) * 2
    progress = PhaseProgress(partial(context.progress, "check"), steps)
    images = make_synthetic_images(plan, context.seed_for("validation"))

    def compute_parts(
        comm: MPI.Intracomm, plan: ModelPlan, ready: Callable[[Engine], None]
    ) -> ResultParts:
        return collect_parts(comm, plan, training, images, ready, progress)

    expected: ResultParts = (
        compute_parts(MPI.COMM_SELF, put_on_one_process(plan), lambda _: None)
        if comm.rank == 0
        else {}
    )
    sleep_at_barrier(comm)
    actual = compute_parts(comm, plan, lambda engine: inject(context, engine))
    worst = WorstError.with_tolerance(0.0)
    for kind in KINDS if training is not None else ("output",):
        expected_values = {key: part.values for key, part in expected.get(kind, {}).items()}
        error, detail = compare(comm, expected_values, actual.get(kind, {}))
        worst.add(error, 0.0, f"{kind} {detail}")
    context.check_worst("bits", worst)
    progress.finish()


def check_products(context: Context, plan: ModelPlan) -> None:
    """Check each rank's products in the format of the run, if a GPU has two formats.

    All ranks must call it.

    Args:
        context: The case.
        plan: The model, with the micro-batches of the small batch.
    """
    if not compares_products(plan.precision, plan.device):
        return
    images = make_synthetic_images(plan, context.seed_for("products"))
    # Products do not depend on the backend. Their check waits for the whole GPU, which must not
    # happen while a receive of NCCL is pending.
    engine = Engine(context.world.comm, replace(plan, backend="mpi"), images)
    with engine.arithmetic.compare_products() as errors:
        engine.evaluate()
    engine.free()
    context.check_worst("products", errors.worst)


def check_full_size(
    context: Context,
    plan: ModelPlan,
    training: TrainingConfig | None,
    inject: Callable[[Context, Engine], None],
) -> None:
    """Run a step at full size and check it. All ranks must call it.

    Args:
        context: The case.
        plan: The model at full size.
        training: None for inference.
        inject: Injects the fault of ``--inject``.
    """
    names = context.entry.list_checks(context.params)
    images = make_synthetic_images(plan, context.seed_for("full size"))
    engine = Engine(context.world.comm, plan, images, training)
    inject(context, engine)
    errors = StepErrors()
    check = StepCheck(engine, training, errors, names)
    progress = PhaseProgress(partial(context.progress, "check"), check.calls + 1)
    check.run(progress)
    progress.finish()
    engine.free()
    for name, worst in errors.to_dict().items():
        if name in names:
            context.check_worst(name, worst)
