"""The checked step of a case at full size: taken on its ranks, reported as its checks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from spbench_parallel.engine import Engine
from spbench_parallel.full_size.check import StepCheck, StepErrors
from spbench_parallel.plan import ModelPlan, TrainingConfig
from spbench_parallel.progress import PhaseProgress
from spbench_parallel.synthetic import synthetic_images
from spbench_workers.context import Context


def check_full_size(
    context: Context,
    plan: ModelPlan,
    training: TrainingConfig | None,
    spoil: Callable[[Context, Engine], None],
) -> None:
    """Take a step, and check it. All ranks must call it.

    Args:
        context: The case.
        plan: The model at full size.
        training: None for inference.
        spoil: Plants the fault that ``--inject`` asks for.
    """
    names = context.entry.list_checks(context.params)
    images = synthetic_images(plan, context.seed_for("full size"))
    engine = Engine(context.world.comm, plan, images, training)
    spoil(context, engine)
    errors = StepErrors()
    check = StepCheck(engine, training, errors, names)
    progress = PhaseProgress(partial(context.progress, "check"), check.calls + 1)
    check.run(progress)
    progress.finish()
    engine.free()
    for name, worst in errors.by_name().items():
        if name in names:
            context.check_worst(name, worst)
