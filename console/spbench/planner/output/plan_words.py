"""Plans, steps and verifications in words, and as cells for any table."""

from __future__ import annotations

from spbench.planner.output.verification import Verified
from spbench.planner.plans import Plan, span_text
from spbench.planner.simulation.step import Simulation
from spbench.record.machine.cores import fold_numbers
from spbench_core.schedule.orders import ZERO_BUBBLE

THIS_PLAN = "this plan"
FASTER_WAYS = "mode hpgo estimates faster ways but does not plan them"


def headlines(plan: Plan) -> tuple[str, str, str]:
    """Return a plan in three lines: what it is, how the batch goes through it, its step."""
    stages = f"{len(plan.stages)} stage{'s' if len(plan.stages) > 1 else ''}"
    stages += f", {plan.rounds} on each device" if plan.rounds > 1 else ""
    batches = f"{plan.micro_batches} micro-batch{'es' if plan.micro_batches > 1 else ''}"
    pipelines = "1 pipeline" if plan.pipelines == 1 else f"each of {plan.pipelines} pipelines"
    return (
        f"{plan.profile} on {plan.cluster}, mode {plan.mode}: {stages}, {plan.schedule}"
        + (f", skips {plan.skips}" if plan.skips else ""),
        f"a batch of {plan.global_batch_size}: {batches} of {plan.micro_batch_size} "
        f"through {pipelines}",
        f"step {milliseconds(plan.step_s)} ms, {plan.speedup:.4g} times as fast as one device "
        f"({milliseconds(plan.single_s)} ms)",
    )


def stage_cells(plan: Plan, at: int) -> tuple[str, ...]:
    """Return a stage: index, layers, states, devices, four times in ms, and memory."""
    stage = plan.stages[at]
    return (
        str(at),
        span_text(plan.state_names, stage.start, stage.end),
        f"{stage.start}-{stage.end - 1}",
        fold_numbers(stage.devices),
        *(
            milliseconds(seconds)
            for seconds in (stage.forward_s, stage.backward_s, stage.send_s, stage.all_reduce_s)
        ),
        f"{stage.memory_bytes / 1e6:.4g} MB{' (recomputes)' if stage.recompute else ''}",
    )


def ways_cells(plan: Plan) -> list[tuple[str, str, str, str]]:
    """Return the other ways to train the same, and the plan: name, step ms, speed-up, reason."""
    rows = [
        (
            each.name,
            "" if each.step_s is None else milliseconds(each.step_s),
            "" if each.speedup is None else f"{each.speedup:.4g}",
            each.reason,
        )
        for each in plan.baselines
    ]
    faster = any(each.step_s is not None and each.step_s < plan.step_s for each in plan.baselines)
    note = FASTER_WAYS if faster and plan.mode == "hpgo" else ""
    return [*rows, (THIS_PLAN, milliseconds(plan.step_s), f"{plan.speedup:.4g}", note)]


def step_words(step: Simulation) -> tuple[str, str]:
    """Return what the marks of a step's timeline mean, and its time and bubble."""
    first, second = "0 forward and a backward", "1 and b"
    if step.schedule == ZERO_BUBBLE:
        first, second = "0 forward, a backward and A weights", "1, b and B"
    return (
        f"{first} of micro-batch 0, {second} of micro-batch 1, = all-reduce",
        f"{step.schedule}: step {milliseconds(step.step_s)} ms, bubble {step.bubble:.1%}",
    )


def verified_cells(plan: Plan, verified: Verified) -> list[tuple[str, str, str, str, str]]:
    """Return stages and step: name, last layer, predicted and measured ms, and the error.

    Stages on the same devices are one row.
    """
    rows = [
        (
            ",".join(map(str, together)),
            ", ".join(plan.state_names[plan.stages[at].end - 1] for at in together),
            row,
        )
        for together, row in zip(plan.together, verified.stages, strict=True)
    ]
    return [
        (
            name,
            end,
            f"{row.predicted_ms:.4g}",
            f"{row.measured_ms:.4g}",
            f"{row.error:+.1%}",
        )
        for name, end, row in (*rows, ("step", "", verified.step))
    ]


def elsewhere_words(verified: Verified) -> str:
    """Return where else a step's time went."""
    spent = ", ".join(f"{name} {value:.4g}" for name, value in verified.elsewhere.items())
    return f"beside that, on the slowest rank of each, ms a step: {spent}"


def milliseconds(seconds: float) -> str:
    """Return seconds as a figure of milliseconds."""
    return f"{1000.0 * seconds:.4g}"
