"""Plans as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from spbench.cli.tables import aligned
from spbench.planner.output.plan_words import (
    elsewhere_words,
    headlines,
    milliseconds,
    stage_cells,
    step_words,
    verified_cells,
    ways_cells,
)
from spbench.record.machine.cores import fold_numbers

if TYPE_CHECKING:
    from spbench.planner.output.verification import Verified
    from spbench.planner.plans import Plan, PlanStage
    from spbench.planner.simulation.step import Simulation

_STAGES = ("stage", "layers", "states", "devices", "forward", "backward", "send", "all-reduce")


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield a plan: its figures, its stages, and other ways to train the same beside it."""
    yield from headlines(plan)
    yield ""
    rows = [stage_cells(plan, at) for at in range(len(plan.stages))]
    yield from aligned([(*_STAGES, "memory"), *rows], (0, 4, 5, 6, 7, 8))
    yield "forward, backward and send of one micro-batch, in ms; memory of each device"
    yield ""
    yield from aligned([("another way", "step ms", "speedup", ""), *ways_cells(plan)], (1, 2))


def batch_lines(plans: Sequence[tuple[int, Plan | None]]) -> Iterator[str]:
    """Yield one line for each of several global batch sizes."""
    rows = [
        (
            str(batch),
            milliseconds(plan.step_s) if plan else "",
            f"{plan.speedup:.4g}" if plan else "",
            str(plan.micro_batch_size) if plan else "",
            " ".join(_stage_word(plan, stage) for stage in plan.stages) if plan else "no plan",
        )
        for batch, plan in plans
    ]
    heading = ("batch", "step ms", "speedup", "micro-batch", "stages: states @ devices")
    yield from aligned([heading, *rows], (0, 1, 2, 3))


def step_lines(step: Simulation) -> Iterator[str]:
    """Yield what a step's timeline means, and its memory."""
    yield from step_words(step)
    for at, (kept, peak) in enumerate(zip(step.in_flight, step.peak_bytes, strict=True)):
        flight = f"{kept} micro-batch{'es' if kept > 1 else ''} in flight at most"
        yield f"stage {at}: {flight}, {peak / 1e6:.4g} MB"


def verified_lines(plan: Plan, verified: Verified) -> Iterator[str]:
    """Yield predicted beside measured: of each stage, and of the step."""
    heading = ("stage", "up to", "predicted ms", "measured ms", "error")
    yield from aligned([heading, *verified_cells(plan, verified)], (2, 3, 4))
    yield "stages: passes and messages of all micro-batches of a step; errors over the measured"
    yield elsewhere_words(verified)


def _stage_word(plan: Plan, stage: PlanStage) -> str:
    return f"{stage.start}-{stage.end - 1}@{fold_numbers(stage.devices)}"
