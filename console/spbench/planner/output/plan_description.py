"""Plans, steps and verifications as lines of text and table cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spbench.planner.cluster.machines import Cluster, Link
from spbench.planner.output.verification import Verification
from spbench.planner.plans import Plan, PlanStage, format_devices, format_span
from spbench.planner.simulation.step import Simulation
from spbench.record.number_formatting import (
    NOISY,
    fold_numbers,
    format_factor,
    format_percent,
    format_rate,
    format_time,
    format_value,
)
from spbench_core.number_text import format_quantity
from spbench_core.schedule.orders import INTERLEAVED, ZERO_BUBBLE, Schedule

THIS_PLAN = "this plan"
STAGE_LEGEND = "times per micro-batch, all-reduce per step, memory per device"
"""The legend below the table of stages, on a terminal and in the TUI."""
_MIN_PART_SHARE = 0.01
"""The smallest share of a step that is worth a mention."""
MAX_OVERHEADS = 6
"""The most stages with message times in a note."""
_MEANING_BY_SCHEDULE: Mapping[Schedule, str] = {
    "gpipe": "all forward passes of a step come before its backward passes",
    "1f1b": "a stage alternates between forward and backward passes, and so keeps few activations",
    "1f1b-deep": "as in 1f1b passes alternate, but more micro-batches are on the way, so that "
    "slow messages delay no stage",
    ZERO_BUBBLE: "a stage computes gradients of weights while it would otherwise wait",
    INTERLEAVED: "each device has several stages, and so waits less",
}
FASTER_WAYS = "mode hpgo estimates faster ways but does not plan them"


def describe_plan(plan: Plan) -> tuple[str, str, str]:
    """Return a plan in three lines: its kind, its micro-batches, and its step."""
    # A single stage sends no messages, so its schedule does not matter.
    stages_text = f"1 stage {format_devices(len(plan.stages[0].devices))}"
    if len(plan.stages) > 1:
        rounds_text = f", {plan.rounds} on each device" if plan.rounds > 1 else ""
        stages_text = f"{len(plan.stages)} stages{rounds_text}, {plan.schedule}"
    batches_text = format_quantity(plan.micro_batches, "micro-batch", "micro-batches")
    pipelines_text = "1 pipeline" if plan.pipelines == 1 else f"each of {plan.pipelines} pipelines"
    return (
        f"{plan.profile} on {plan.cluster}, mode {plan.mode}: {stages_text}"
        + (f", skips {plan.skips}" if plan.skips else ""),
        f"a batch of {plan.global_batch_size}: {batches_text} of {plan.micro_batch_size} "
        f"through {pipelines_text}",
        f"step {format_seconds(plan.step_s)}, {format_factor(plan.speedup)} as fast as one device "
        f"({format_seconds(plan.single_s)})",
    )


def explain_plan(plan: Plan) -> list[str]:
    """Return lines of text that explain stages, batch, limits and memory of a plan."""
    stages = plan.stages
    cut = "There is one stage: each device has a copy of all layers, and takes part of the batch."
    if sum(stage.device_count for stage in stages) == 1:
        cut = "There is one stage: the device has all layers."
    if len(stages) > 1:
        cut = (
            "A stage is a part of the layers, with its devices. Each micro-batch goes "
            f"through all {len(stages)} stages."
        )
    batches = f"The batch of {plan.global_batch_size} samples is one micro-batch."
    if plan.micro_batches > 1:
        batches = (
            f"A micro-batch is a part of the batch: {plan.global_batch_size} samples are "
            f"{plan.micro_batches} micro-batches of {plan.micro_batch_size} in each pipeline."
        )
    lines = [cut, batches]
    if len(stages) > 1:
        slowest = max(range(len(stages)), key=lambda index: _compute_pass_seconds(stages[index]))
        seconds = format_seconds(_compute_pass_seconds(stages[slowest]))
        lines.append(f"Stage {slowest} is the slowest: its passes take {seconds} per micro-batch.")
        lines.append(describe_schedule(plan.schedule))
    shared = [index for index, stage in enumerate(stages) if stage.device_count > 1]
    if shared:
        lines.append(
            f"The devices of {_format_stages(shared)} are replicas: they have the same layers, "
            "share each micro-batch, and sum their gradients in an all-reduce in each step."
        )
    largest = max(range(len(stages)), key=lambda index: stages[index].memory_bytes)
    memory = format_memory(stages[largest].memory_bytes)
    lines.append(f"Stage {largest} needs the most memory: {memory} on each of its devices.")
    return lines


def describe_schedule(schedule: Schedule) -> str:
    """Return the name of a schedule and its meaning."""
    return f"Schedule {schedule}: {_MEANING_BY_SCHEDULE[schedule]}."


def describe_bubble(simulation: Simulation) -> str:
    """Return the step's time and bubble."""
    return (
        f"step {format_seconds(simulation.step_s)}, bubble {format_percent(simulation.bubble)} "
        "(devices' time without work)"
    )


def _compute_pass_seconds(stage: PlanStage) -> float:
    return stage.forward_s + stage.backward_s


def describe_links(cluster: Cluster) -> str:
    """Return the bandwidths of a plan: ``links: 10.0 GB/s within machines``.

    Both bandwidths are shown if those of all-reduces and messages differ.
    """
    within = [machine.link for machine in cluster.machines if machine.link is not None]
    between = [link for link in (cluster.between, *cluster.pairs.values()) if link is not None]
    between = between if len(cluster.machines) > 1 else []
    bandwidth_texts = [
        f"{_describe_bandwidths(links)} {relation} machines"
        for links, relation in ((within, "within"), (between, "between"))
        if links
    ]
    if not bandwidth_texts:
        return ""
    return f"{_mark_assumed('links', cluster)}: {', '.join(bandwidth_texts)}"


def _describe_bandwidths(links: Sequence[Link]) -> str:
    message_rates = {link.bandwidth for link in links}
    all_reduce_rates = {link.all_reduce_bandwidth for link in links}
    if message_rates == all_reduce_rates:
        return _join_rates(message_rates)
    return f"{_join_rates(message_rates)} ({_join_rates(all_reduce_rates)} in all-reduces)"


def _join_rates(bytes_per_s: Iterable[float]) -> str:
    return " or ".join(
        format_rate(link_bytes_per_s / 1e9) for link_bytes_per_s in sorted(bytes_per_s)
    )


def describe_memory(cluster: Cluster) -> str:
    """Return the memory of the cluster's devices: ``device memory: 8.00 GB``."""
    sizes_bytes = {kind.memory_bytes for kind in cluster.kinds}
    known_sizes = [
        format_memory(size_bytes)
        for size_bytes in sorted(size_bytes for size_bytes in sizes_bytes if size_bytes is not None)
    ]
    sizes_text = " or ".join([*known_sizes, "unknown"] if None in sizes_bytes else known_sizes)
    return f"{_mark_assumed('device memory', cluster)}: {sizes_text}"


def _mark_assumed(name: str, cluster: Cluster) -> str:
    """Return the name of values, marked if they are neither given nor measured."""
    return f"assumed {name}" if cluster.is_assumed else name


def list_stage_notes(plan: Plan) -> list[str]:
    """Return notes on a plan's stages that are not in their table.

    The notes cover times that are not measured at their batch size, hidden parts of all-reduces,
    time for messages, times that do not add up, stages that recompute, and why the plan cannot run.
    """
    notes = _list_batch_notes(plan)
    for index, stage in enumerate(plan.stages):
        if stage.overlapped_s > 0.0:
            all_reduce_text = format_seconds(stage.all_reduce_s)
            hidden_text = format_seconds(min(stage.overlapped_s, stage.all_reduce_s))
            notes.append(
                f"stage {index}: the all-reduce takes {all_reduce_text}, of which {hidden_text}"
                " overlap the last backward pass"
            )
    if any(stage.overhead_s > 0.0 for stage in plan.stages):
        overhead_texts = [format_seconds(stage.overhead_s) for stage in plan.stages]
        shown = ", ".join(overhead_texts[:MAX_OVERHEADS])
        if len(overhead_texts) > MAX_OVERHEADS:
            shown += ", ..."
        notes.append(
            f"forward and backward include the handling of messages: {shown} each, stage by stage"
        )
    if len(plan.stages) > 1:
        notes.append(_describe_overlap(plan))
    recomputing = tuple(index for index, stage in enumerate(plan.stages) if stage.recompute)
    if recomputing:
        notes.append(
            f"{_format_stages(recomputing)}: activations are recomputed in the backward pass"
        )
    members = [stage.device_count // plan.pipelines for stage in plan.stages]
    max_members = max(members)
    if max_members > plan.micro_batch_size:
        notes.append(
            f"cannot be run: the {max_members} devices of stage {members.index(max_members)} "
            f"share micro-batches of {plan.micro_batch_size}; "
            f"plan with --micro-batch-size {max_members} or more"
        )
    return notes


def _describe_overlap(plan: Plan) -> str:
    """Return why the times of several stages do not add up to the step."""
    note = "stages work at the same time, so that their times do not add up to the step"
    if plan.schedule == ZERO_BUBBLE:
        note += f"; by {ZERO_BUBBLE}, gradients of weights wait until a stage has nothing else"
    return note


def _format_stages(stages: Sequence[int]) -> str:
    """Return stages by number: ``stage 0``, ``stages 0-2``."""
    return f"stage{'s' if len(stages) > 1 else ''} {fold_numbers(tuple(stages))}"


def _list_batch_notes(plan: Plan) -> list[str]:
    """Return a note if times are interpolated or extrapolated between batch sizes."""
    measured = plan.measured_batches
    members = (stage.device_count // plan.pipelines for stage in plan.stages)
    samples_per_device = sorted({plan.micro_batch_size / count for count in members} - {*measured})
    if not measured or not samples_per_device:
        return []
    outside = [size for size in samples_per_device if not measured[0] <= size <= measured[-1]]
    method = "extrapolated" if len(outside) == len(samples_per_device) else "interpolated"
    if outside and len(outside) < len(samples_per_device):
        method = f"interpolated, beyond {measured[0]} to {measured[-1]} extrapolated"
    return [
        f"the profile was measured at batches of {_format_series(measured)}; "
        f"times at {_format_series(samples_per_device)} per device are {method}"
    ]


def _format_series(sizes: Sequence[float]) -> str:
    """Return numbers as text: ``1, 2 and 4``."""
    *others, last = (f"{round(size, 2):g}" for size in sizes)
    return f"{', '.join(others)} and {last}" if others else last


def format_stage_cells(plan: Plan, index: int) -> tuple[str, ...]:
    """Return a stage's index, layers, states, devices, four times, and memory."""
    stage = plan.stages[index]
    return (
        str(index),
        format_span(plan.state_names, stage.start, stage.end),
        f"{stage.start}-{stage.end - 1}",
        fold_numbers(stage.devices),
        *(
            format_seconds(seconds)
            for seconds in (stage.forward_s, stage.backward_s, stage.send_s, stage.all_reduce_s)
        ),
        format_memory(stage.memory_bytes),
    )


def format_baseline_cells(plan: Plan) -> list[tuple[str, str, str, str]]:
    """Return baselines and the plan: name, step, speed-up, and reason."""
    rows = [
        (
            baseline.name,
            "" if baseline.step_s is None else format_seconds(baseline.step_s),
            "" if baseline.speedup is None else format_factor(baseline.speedup),
            baseline.reason,
        )
        for baseline in plan.baselines
    ]
    has_faster_baseline = any(
        baseline.step_s is not None and baseline.step_s < plan.step_s for baseline in plan.baselines
    )
    note = FASTER_WAYS if has_faster_baseline and plan.mode == "hpgo" else ""
    return [*rows, (THIS_PLAN, format_seconds(plan.step_s), format_factor(plan.speedup), note)]


def describe_step(simulation: Simulation) -> tuple[str, str]:
    """Return the meaning of a timeline's marks, and the step's time and bubble."""
    first_marks = "0 forward and a backward"
    second_marks = "1 and b of micro-batch 1"
    if simulation.schedule == ZERO_BUBBLE:
        first_marks = "0 forward, a backward and A weights"
        second_marks = "1, b and B of micro-batch 1"
    marks = [f"{first_marks} of micro-batch 0"]
    if any(span.micro_batch for span in simulation.spans):
        marks.append(second_marks)
    marks.append("= all-reduce")
    return (
        ", ".join(marks),
        f"{simulation.schedule}: {describe_bubble(simulation)}",
    )


def format_verification_cells(
    plan: Plan, verification: Verification
) -> list[tuple[str, str, str, str, str]]:
    """Return rows of name, last layer, predicted and measured time, and error.

    There is a row for each group of devices, and one for the step. Errors of a disturbed run are
    marked.
    """
    rows = [
        (
            ",".join(map(str, group)),
            ", ".join(plan.state_names[plan.stages[index].end - 1] for index in group),
            times,
        )
        for group, times in zip(plan.stage_groups, verification.stages, strict=True)
    ]
    mark = f"{NOISY} " if verification.noise else ""
    return [
        (
            name,
            end,
            format_time(times.predicted_ms),
            format_time(times.measured_ms),
            f"{mark}{100 * times.error:+.1f} %",
        )
        for name, end, times in (*rows, ("step", "", verification.step))
    ]


def describe_step_parts(plan: Plan, verification: Verification) -> str:
    """Return the parts of a step on the rank with the most work, and its prediction.

    Parts below `_MIN_PART_SHARE` are left out, since no prediction is that precise.
    """
    work, *other_parts = verification.parts_ms.items()
    min_part_ms = _MIN_PART_SHARE * verification.step.measured_ms
    texts = [f"{name} {format_time(ms)}" for name, ms in other_parts if ms >= min_part_ms]
    parts_text = ", ".join([f"{work[0]} take {format_time(work[1])}", *texts])
    step_text = format_time(verification.step.measured_ms)
    return (
        f"Rank {verification.rank} has the most work: of its step of {step_text}, {parts_text}. "
        f"{_describe_predicted_parts(plan)}"
    )


_REST_NAMES = {"bubble": "waiting for other ranks"}
"""Names of parts of a step that are not those of their metrics: a single stage has no bubble."""


def describe_step_rest(plan: Plan, verification: Verification) -> str:
    """Return the rank of the parts, the content of its rest and of the prediction."""
    min_part_ms = _MIN_PART_SHARE * verification.step.measured_ms
    rest_texts = [
        f"{_REST_NAMES.get(name, name)} {format_time(part_ms)}"
        for name, part_ms in verification.rest_ms.items()
        if part_ms >= min_part_ms
    ]
    rest_text = f" The measured rest: {', '.join(rest_texts)}." if rest_texts else ""
    return (
        f"The parts are those of rank {verification.rank}, which has the most work.{rest_text} "
        f"{_describe_predicted_parts(plan)}"
    )


def _describe_predicted_parts(plan: Plan) -> str:
    """Return a message on the parts of a step that a plan predicts."""
    all_reduce_s = max(stage.all_reduce_s for stage in plan.stages)
    exposed_s = max(stage.all_reduce_s - stage.overlapped_s for stage in plan.stages)
    min_part_s = _MIN_PART_SHARE * plan.step_s
    parts_text = "the passes"
    if all_reduce_s > 0 and all_reduce_s >= min_part_s:
        parts_text = f"the passes and an all-reduce of {format_seconds(all_reduce_s)}"
        exposed_text = f"{format_seconds(exposed_s)} of it after the passes"
        is_hidden = exposed_s < min_part_s
        parts_text += " during them" if is_hidden else f" ({exposed_text})"
    return f"The prediction covers {parts_text}, but not the optimizer."


def describe_run_noise(verification: Verification) -> str:
    """Return a line on disturbances of the run of a plan; empty without any."""
    if not verification.noise:
        return ""
    return f"{NOISY} disturbed: {verification.noise}. These are not only errors of the plan."


def format_seconds(seconds: float) -> str:
    """Return seconds as text: ``96.4 ms``."""
    return format_time(1000.0 * seconds)


def format_memory(size_bytes: float) -> str:
    """Return bytes of memory as text: ``342 MB``."""
    return format_value(size_bytes / 1e6, "MB")
