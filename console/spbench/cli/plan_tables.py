"""Plans as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from spbench.cli.tables import aligned
from spbench.record.cores import fold_numbers

if TYPE_CHECKING:
    from spbench.planner import Plan, Simulation
    from spbench.planner.plans import Stage
    from spbench.planner.verification import Verified

_STAGES = ("stage", "layers", "states", "devices", "forward", "backward", "send", "all-reduce")


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield a plan: its figures, its stages, and other ways to train the same beside it."""
    stages = f"{len(plan.stages)} stage{'s' if len(plan.stages) > 1 else ''}"
    pipelines = "1 pipeline" if plan.pipelines == 1 else f"each of {plan.pipelines} pipelines"
    yield f"{plan.profile} on {plan.cluster}, mode {plan.mode}: {stages}, {plan.schedule}"
    yield (
        f"a batch of {plan.global_batch_size}: {plan.micro_batches} micro-batches of "
        f"{plan.micro_batch_size} through {pipelines}"
    )
    yield (
        f"step {_ms(plan.step_s)} ms, {plan.speedup:.4g} times as fast as one device "
        f"({_ms(plan.single_s)} ms)"
    )
    yield ""
    rows = [_row(plan, at, stage) for at, stage in enumerate(plan.stages)]
    yield from aligned([(*_STAGES, "memory"), *rows], (0, 4, 5, 6, 7, 8))
    yield "forward, backward and send of one micro-batch, in ms; memory of each device"
    yield ""
    told = [
        (
            each.name,
            "" if each.step_s is None else _ms(each.step_s),
            "" if each.speedup is None else f"{each.speedup:.4g}",
            each.reason,
        )
        for each in plan.baselines
    ]
    heading = ("another way", "step ms", "speedup", "")
    this = ("this plan", _ms(plan.step_s), f"{plan.speedup:.4g}", "")
    yield from aligned([heading, *told, this], (1, 2))


def batch_lines(plans: Sequence[tuple[int, Plan | None]]) -> Iterator[str]:
    """Yield one line for each of several global batch sizes."""
    rows = [
        (
            str(batch),
            _ms(plan.step_s) if plan else "",
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
    yield "0 forward and a backward of micro-batch 0, 1 and b of micro-batch 1, = all-reduce"
    yield f"{step.schedule}: step {_ms(step.step_s)} ms, bubble {step.bubble:.1%}"
    for at, (kept, peak) in enumerate(zip(step.in_flight, step.peak_bytes, strict=True)):
        flight = f"{kept} micro-batch{'es' if kept > 1 else ''} in flight at most"
        yield f"stage {at}: {flight}, {peak / 1e6:.4g} MB"


def verified_lines(plan: Plan, verified: Verified) -> Iterator[str]:
    """Yield predicted beside measured: of each stage, and of the step."""
    rows = [
        (
            str(at),
            plan.state_names[plan.stages[at].end - 1],
            *(f"{value:.4g}" for value in (row.predicted_ms, row.measured_ms)),
            f"{row.error:+.1%}",
        )
        for at, row in enumerate(verified.stages)
    ]
    step = verified.step
    rows.append(
        ("step", "", f"{step.predicted_ms:.4g}", f"{step.measured_ms:.4g}", f"{step.error:+.1%}")
    )
    heading = ("stage", "up to", "predicted ms", "measured ms", "error")
    yield from aligned([heading, *rows], (2, 3, 4))
    yield "stages: forward and backward of all micro-batches of a step; errors over the measured"
    spent = ", ".join(f"{name} {value:.4g}" for name, value in verified.elsewhere.items())
    yield f"beside that, on the slowest rank of each, ms a step: {spent}"


def _row(plan: Plan, at: int, stage: Stage) -> tuple[str, ...]:
    first, last = plan.state_names[stage.start], plan.state_names[stage.end - 1]
    return (
        str(at),
        first if first == last else f"{first} to {last}",
        f"{stage.start}-{stage.end - 1}",
        fold_numbers(stage.devices),
        *(
            _ms(seconds)
            for seconds in (stage.forward_s, stage.backward_s, stage.send_s, stage.all_reduce_s)
        ),
        f"{stage.memory_bytes / 1e6:.4g} MB{' (recomputes)' if stage.recompute else ''}",
    )


def _stage_word(plan: Plan, stage: Stage) -> str:
    return f"{stage.start}-{stage.end - 1}@{fold_numbers(stage.devices)}"


def _ms(seconds: float) -> str:
    return f"{1000.0 * seconds:.4g}"
