"""Output of ``spbench plan``: plans as tables on a terminal and in other formats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from spbench.planner.output.plan_description import (
    STAGE_LEGEND,
    describe_links,
    describe_memory,
    describe_plan,
    describe_run_noise,
    describe_step,
    describe_step_parts,
    format_baseline_cells,
    format_memory,
    format_seconds,
    format_stage_cells,
    format_verification_cells,
    list_stage_notes,
)
from spbench.record.number_formatting import fold_numbers, format_factor
from spbench.report.text_tables import (
    ELLIPSIS,
    TextColumn,
    align_and_wrap,
    align_columns,
    cut_middle,
    render_table,
    wrap_text,
)
from spbench_core.number_text import format_quantity

if TYPE_CHECKING:
    from spbench.planner.cluster.machines import Cluster
    from spbench.planner.errors import PlannerError
    from spbench.planner.output.verification import Verification
    from spbench.planner.plans import Plan, PlanStage
    from spbench.planner.simulation.step import Simulation

_STATES = "states"
_STAGES = (
    TextColumn("stage", right=True),
    TextColumn("layers", ids=True),
    TextColumn(_STATES, optional=True, drop_priority=3),
    TextColumn("devices"),
    TextColumn("forward", right=True),
    TextColumn("backward", right=True),
    TextColumn("send", right=True, optional=True, drop_priority=2),
    TextColumn("all-reduce", right=True, optional=True, drop_priority=1),
    TextColumn("memory", right=True),
)
_DEVICES = 3
"""The column of the devices, which is long for scattered devices."""
_MIN_DEVICES = 7
_VERIFIED = (
    TextColumn("stage"),
    TextColumn("up to", ids=True),
    TextColumn("predicted", right=True),
    TextColumn("measured", right=True),
    TextColumn("error", right=True),
)
_STATES_LEGEND = "states: the numbers of the layers, as --format json has them"
_VERIFIED_LEGEND = (
    "stages: passes and messages of all micro-batches of a step, mean of a stage's ranks; error: "
    "predicted over measured time, minus 1"
)
_BATCHES = ("batch", "step", "speed-up", "micro-batch", "layers@devices")
_BATCH_LEGEND = "0-17@0-31: a stage of layers 0 to 17 on devices 0 to 31, counted from 0"


def render_plans(
    batches: Sequence[int],
    outcomes: Sequence[Plan | PlannerError],
    format_: str,
    cluster: Cluster,
    width: int,
) -> str:
    """Return the plans of batch sizes in a format, without those that failed.

    Args:
        batches: The global batch sizes.
        outcomes: The plan of each batch size, or its error.
        format_: One of `plan.FORMATS`.
        cluster: The cluster of the plans.
        width: The most columns of a line of text.
    """
    from spbench.planner.errors import PlannerError
    from spbench.planner.output.plan_json import build_plan_json
    from spbench.planner.output.plan_text import render_csv, render_dot, render_hpgo

    plans_or_none = [None if isinstance(outcome, PlannerError) else outcome for outcome in outcomes]
    plans = [plan for plan in plans_or_none if plan is not None]
    is_single = len(batches) == 1
    if format_ == "json":
        objects = [build_plan_json(plan) for plan in plans]
        return json.dumps(objects[0] if is_single else objects, indent=1, allow_nan=False) + "\n"
    if format_ == "csv":
        return render_csv(zip(batches, plans_or_none, strict=True))
    if format_ == "dot":
        return render_dot(plans[0])
    if format_ == "hpgo":
        return "".join(f"{render_hpgo(plan)}\n" for plan in plans)
    batches_with_plans = list(zip(batches, plans_or_none, strict=True))
    lines = (
        render_plan(plans[0], cluster, width)
        if is_single
        else render_batches(batches_with_plans, width)
    )
    return "".join(f"{line}\n" for line in lines)


def render_step(plan: Plan, timeline: str) -> str:
    """Return a simulated step of a plan in one of `plan.TIMELINES`."""
    from spbench.planner.simulation.step import simulate

    step = simulate(plan)
    if timeline == "svg":
        from spbench.planner.output.timeline_svg import render_timeline_svg

        return render_timeline_svg(plan, step)
    if timeline == "trace":
        from spbench.planner.output.trace import build_trace

        return json.dumps(build_trace(plan, step)) + "\n"
    from spbench.planner.output.timeline_text import render_timeline_text

    width = shutil.get_terminal_size((100, 24)).columns
    lines = (*render_timeline_text(step, width), *render_step_legend(step, width))
    return "".join(f"{line}\n" for line in lines)


def render_plan(plan: Plan, cluster: Cluster, width: int) -> Iterator[str]:
    """Yield a plan: its times, the cluster, its stages, and the baselines.

    Args:
        plan: The plan.
        cluster: Its cluster.
        width: The most columns of a line.
    """
    links = describe_links(cluster)
    yield from _wrap_lines((*describe_plan(plan), *([links] if links else ())), width)
    yield from _wrap_lines((describe_memory(cluster),), width)
    yield ""
    table = _render_stage_table(plan, width)
    yield from table
    yield from _wrap_lines((STAGE_LEGEND, *list_stage_notes(plan)), width)
    if _STATES in table[0].split():
        yield from _wrap_lines((_STATES_LEGEND,), width)
    yield ""
    baselines = [("way to train", "step", "speed-up", ""), *format_baseline_cells(plan)]
    yield from align_and_wrap(baselines, width, (1, 2))


def render_batches(plans: Sequence[tuple[int, Plan | None]], width: int) -> Iterator[str]:
    """Yield a line for each of several global batch sizes, and a legend."""
    rows = [
        (
            str(batch),
            format_seconds(plan.step_s) if plan else "",
            format_factor(plan.speedup) if plan else "",
            str(plan.micro_batch_size) if plan else "",
        )
        for batch, plan in plans
    ]
    *titles, stages_title = _BATCHES
    number_lines = align_columns([titles, *rows], range(len(titles)))
    stages_width = width - max(map(len, number_lines)) - 2
    stage_texts = [
        _cut_stages([_format_stage(plan, stage) for stage in plan.stages], stages_width)
        if plan
        else "no plan"
        for _, plan in plans
    ]
    yield from align_columns(
        [
            (*row, cell)
            for row, cell in zip((titles, *rows), (stages_title, *stage_texts), strict=True)
        ],
        range(len(titles)),
    )
    yield from _wrap_lines((_BATCH_LEGEND,), width)


def render_step_legend(step: Simulation, width: int) -> Iterator[str]:
    """Yield the legend of a step's timeline, and its memory."""
    yield from _wrap_lines(describe_step(step), width)
    for stage, (in_flight, peak) in enumerate(zip(step.in_flight, step.peak_bytes, strict=True)):
        micro_batches = format_quantity(in_flight, "micro-batch", "micro-batches")
        yield f"stage {stage}: {micro_batches} in flight at most, {format_memory(peak)}"


def render_verification(plan: Plan, verified: Verification, width: int) -> Iterator[str]:
    """Yield predicted and measured times of each stage and of the step."""
    yield from render_table(_VERIFIED, format_verification_cells(plan, verified), width)
    noise_line = describe_run_noise(verified)
    lines = (_VERIFIED_LEGEND, *([noise_line] if noise_line else []))
    yield from _wrap_lines((*lines, describe_step_parts(plan, verified)), width)


def _render_stage_table(plan: Plan, width: int) -> list[str]:
    rows = [list(format_stage_cells(plan, stage)) for stage in range(len(plan.stages))]
    longest_width = max(len(row[_DEVICES]) for row in rows)
    max_width = min(longest_width, max(width // 4, _MIN_DEVICES))
    table = _shorten_devices(rows, max_width, width)
    excess_width = max(map(len, table)) - width
    if excess_width > 0:
        table = _shorten_devices(rows, max(max_width - excess_width, _MIN_DEVICES), width)
    return table


def _shorten_devices(rows: Sequence[Sequence[str]], max_width: int, width: int) -> list[str]:
    short_rows = [
        [*row[:_DEVICES], cut_middle(row[_DEVICES], max_width), *row[_DEVICES + 1 :]]
        for row in rows
    ]
    return render_table(_STAGES, short_rows, width)


def _format_stage(plan: Plan, stage: PlanStage) -> str:
    return f"{stage.start}-{stage.end - 1}@{fold_numbers(stage.devices)}"


def _cut_stages(stages: Sequence[str], width: int) -> str:
    """Return stages in at most `width` characters, without middle ones if necessary."""
    text = " ".join(stages)
    shown_count = len(stages) - 1
    while len(text) > width and shown_count > 1:
        shown_count -= 1
        text = " ".join((*stages[:shown_count], ELLIPSIS, stages[-1]))
    return cut_middle(text, width)


def _wrap_lines(lines: Iterable[str], width: int) -> Iterator[str]:
    for line in lines:
        yield from wrap_text(line, width)
