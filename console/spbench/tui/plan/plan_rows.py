"""The rows and bars of a plan: stages, alternatives, memory, and measured times."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.planner.hpgo.baselines import (
    DP_OVERLAP,
    DP_P3,
    DP_PLAIN,
    GPIPE,
    STRAIGHT_PIPELINE,
)
from spbench.planner.output.measured_plan import MeasuredPlan
from spbench.planner.output.plan_description import (
    THIS_PLAN,
    format_baseline_cells,
    format_memory,
    format_stage_cells,
)
from spbench.planner.output.verification import TimeComparison, Verification, compare_step_parts
from spbench.planner.plans import Plan, format_span
from spbench.planner.request import PlanDetails
from spbench.planner.simulation.stage_memory import StageMemory, find_bar_limits
from spbench.record.number_formatting import (
    NOISY,
    fold_numbers,
    format_percent,
    format_time,
)
from spbench.report.times import format_day_and_time
from spbench.tui.widgets.fixed_rows import FixedRow, get_text
from spbench.tui.widgets.stacked_bars import Bar
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.number_text import format_quantity

BAR_WIDTH = 20
"""Cells of the longest bar in a table."""
STAGES = (
    Column("stage", "stage", 5, "right"),
    Column("layers", "layers", 14, flexible=True),
    Column("devices", "devices", 7),
    Column("forward", "forward", 7, "right"),
    Column("backward", "backward", 8, "right"),
    Column("send", "send", 7, "right", drop_priority=3),
    Column("all-reduce", "all-reduce", 10, "right", drop_priority=2),
    Column("memory", "memory", 18),
)
ALTERNATIVES = (
    Column("way", "way", 19),
    Column("step", "step", 8, "right"),
    Column("speedup", "speed-up", 8, "right"),
    Column("bar", "relative speed-up", BAR_WIDTH, drop_priority=1),
    Column("reason", "note", 10, flexible=True),
)
DEVICES = (
    Column("device", "device", 6, "right"),
    Column("machine", "machine", 12, flexible=True),
    Column("stages", "stage", 8),
    Column("busy", "passes", 6, "right"),
    Column("sums", "all-reduce", 10, "right"),
    Column("idle", "idle", 6, "right"),
    Column("bar", "share of passes", BAR_WIDTH, drop_priority=1),
)
MEASURED = (
    Column("part", "part of the step", 21, flexible=True),
    Column("predicted", "predicted", 9, "right"),
    Column("measured", "measured", 8, "right"),
    Column("error", "prediction", 16, "right"),
)
WAYS = f"""\
{DP_PLAIN}: a replica on each device, and one all-reduce after the backward pass
{DP_OVERLAP}: the same, with all-reduces of layers during the backward pass
{DP_P3}: the same, with all-reduces also during the forward pass of the next step
{STRAIGHT_PIPELINE}: one stage for each device, without replicas, as in PipeDream
{GPIPE}: a pipeline that runs all forward passes first, and recomputes activations"""
"""The meaning of each alternative."""
_AS_FAST = "as fast as this plan"
"""The note of an alternative with the step of the plan."""
_NO_TIME = "no time, see note"
"""Instead of the bar of an alternative that has no plan."""
MEMORY_PARTS = ("parameters and gradients", "activations", "running pass")
"""The parts of a stage's memory."""
_MAX_MEMORY_LINES = 8
"""The most stages that are listed with the parts of their memory."""
_MIN_COMPARED_SHARE = 0.01
"""The smallest share of a step of a part that is compared with its prediction."""
_NOTABLE_ERROR = 0.2
"""Error of a prediction from which it is marked."""
_LARGE_ERROR = 0.5
"""Error of a prediction from which it is marked as failed."""
_PASSES = ("forward", "backward", "weights")
_NEARLY_FULL = 0.9
"""Share of a device's memory from which the value is marked."""


def build_stage_rows(details: PlanDetails) -> list[FixedRow]:
    """Return a row for each stage."""
    rows = []
    # Layers of torchgraph text have their arguments in their names: Conv2d(3, 64, ...).
    names = [name.partition("(")[0] for name in details.plan.state_names]
    for index, memory in enumerate(details.memory):
        stage = details.plan.stages[index]
        number, _, _, devices, *time_texts, _ = format_stage_cells(details.plan, index)
        layers = format_span(names, stage.start, stage.end)
        cells: list[TableCell | str] = [number, layers, devices, *time_texts]
        cells.append(_make_memory_cell(memory))
        sort_keys = [index, stage.start, stage.devices]
        sort_keys += [stage.forward_s, stage.backward_s, stage.send_s, stage.all_reduce_s]
        sort_keys.append(memory.peak_bytes)
        rows.append(FixedRow(cells, sort_keys))
    return rows


def build_alternative_rows(plan: Plan) -> list[FixedRow]:
    """Return a row for each alternative, and a marked one for the plan."""
    rows = []
    plan_step = format_time(1000 * plan.step_s)
    time_keys = [(baseline.step_s, baseline.speedup) for baseline in plan.baselines]
    time_keys.append((plan.step_s, plan.speedup))
    best_speedup = max(speedup for _, speedup in time_keys if speedup is not None)
    for texts, row_time_keys in zip(format_baseline_cells(plan), time_keys, strict=True):
        name, step, speedup, reason = texts
        step_s, speedup_key = row_time_keys
        if name != THIS_PLAN and not reason and step == plan_step:
            reason = _AS_FAST
        style = "accent" if name == THIS_PLAN else ""
        bar_text = _NO_TIME if speedup_key is None else draw_bar(speedup_key / best_speedup)
        bar = TableCell(bar_text, style or "muted")
        cells = (TableCell(name, style), step, speedup, bar, TableCell(reason, "muted"))
        rows.append(FixedRow(cells, (name, step_s, speedup_key, speedup_key, reason or None)))
    return rows


def describe_replicas(plan: Plan) -> str:
    """Return the part of a micro-batch for each replica; empty with several stages."""
    count = plan.stages[0].device_count // plan.pipelines
    if len(plan.stages) > 1 or count < 2 or plan.micro_batch_size % count:
        return ""
    samples = format_quantity(plan.micro_batch_size // count, "sample")
    return f", {samples} on each of {count} devices"


def draw_bar(share: float) -> str:
    """Return a bar, of at least one cell if the share is above 0."""
    return "█" * max(round(share * BAR_WIDTH), 1 if share > 0 else 0)


def build_device_rows(details: PlanDetails) -> list[FixedRow]:
    """Return a row for each device: machine, stages, and parts of its step."""
    step_s = details.simulation.step_s
    rows = []
    for group in details.plan.stage_groups:
        pass_s, sum_s = _measure_busy_s(details, group)
        shares = (pass_s / step_s, sum_s / step_s, max(0.0, 1 - (pass_s + sum_s) / step_s))
        for device in details.plan.stages[group[0]].devices:
            machine = details.cluster.machines[details.cluster.find_machine(device)].name
            cells: list[TableCell | str] = [str(device), machine, fold_numbers(group)]
            cells += map(format_percent, shares)
            cells.append(TableCell(draw_bar(shares[0]), "muted"))
            rows.append(FixedRow(cells, (device, machine, group, *shares, shares[0])))
    return sorted(rows, key=lambda row: row.sort_keys[0])


def _measure_busy_s(details: PlanDetails, group: tuple[int, ...]) -> tuple[float, float]:
    """Return the seconds of passes and of all-reduces of devices of these stages."""
    pass_s = sum_s = 0.0
    for span in details.simulation.spans:
        if span.stage in group and span.kind in _PASSES:
            pass_s += span.end_s - span.start_s
        elif span.stage in group and span.kind == "all-reduce":
            sum_s += span.end_s - span.start_s
    return pass_s, sum_s


def list_alternative_notes(rows: Sequence[FixedRow]) -> list[str]:
    """Return the note of each alternative, equal ones once."""
    names_by_note: dict[str, list[str]] = {}
    for name, *_, note in (map(get_text, row.cells) for row in rows):
        if note:
            names_by_note.setdefault(note, []).append(name)
    return [f"{', '.join(names)}: {note}" for note, names in names_by_note.items()]


def build_verification_rows(plan: Plan, verification: Verification) -> list[FixedRow]:
    """Return rows of the parts of the step, of the step, and of several stages."""
    times_by_name = {**compare_step_parts(plan, verification), "step": verification.step}
    if len(verification.stages) > 1:
        for group, times in zip(plan.stage_groups, verification.stages, strict=True):
            name = f"stage {', '.join(map(str, group))}, mean of ranks"
            times_by_name[name] = times
    min_part_ms = _MIN_COMPARED_SHARE * verification.step.measured_ms
    rows = []
    for index, (name, times) in enumerate(times_by_name.items()):
        is_compared = times.measured_ms >= min_part_ms
        error_cell = TableCell("")
        if is_compared:
            error_cell = _make_error_cell(times, bool(verification.noise))
        times_ms = (times.predicted_ms, times.measured_ms)
        sort_keys = (index, *times_ms, times.error if is_compared else None)
        rows.append(FixedRow((name, *map(format_time, times_ms), error_cell), sort_keys))
    return rows


def describe_measurement(measured: MeasuredPlan) -> str:
    """Return the measured step, when it was measured, and the error of the prediction."""
    step = measured.verification.step
    moment = format_day_and_time(measured.started)
    step_text = f"a step takes {format_time(step.measured_ms)}"
    return f"Measured {moment}: {step_text}, the prediction is {_describe_error(step)}"


def _make_error_cell(times: TimeComparison, is_disturbed: bool) -> TableCell:
    """Return how far a prediction is from the measured time, coloured by size."""
    style = ""
    if abs(times.error) > _LARGE_ERROR:
        style = "failed"
    elif abs(times.error) > _NOTABLE_ERROR:
        style = "slow"
    return TableCell(f"{f'{NOISY} ' if is_disturbed else ''}{_describe_error(times)}", style)


def _describe_error(times: TimeComparison) -> str:
    percent = format_percent(abs(times.error))
    return f"{percent} too {'low' if times.error < 0 else 'high'}"


def build_memory_bars(details: PlanDetails) -> tuple[list[Bar], bool]:
    """Return bars of the memory of each stage, and whether they relate to the devices."""
    bar_bytes_by_stage, are_capacities = find_bar_limits(details.memory)
    bars = []
    for index, memory in enumerate(details.memory):
        bar_bytes = bar_bytes_by_stage[index]
        label = f"stage {index}: {format_memory(memory.peak_bytes)} used"
        remainder = ""
        if are_capacities:
            remainder = f"{format_memory(max(0.0, bar_bytes - memory.peak_bytes))} free"
        bars.append(Bar(label, [part / bar_bytes for part in _list_parts(memory)], remainder))
    return bars, are_capacities


def describe_memory_parts(details: PlanDetails) -> list[str]:
    """Return the bytes of each part of the memory of the first stages."""
    lines = [
        f"stage {index}: "
        + ", ".join(
            f"{name} {format_memory(part)}"
            for name, part in zip(MEMORY_PARTS, _list_parts(memory), strict=True)
            if part > 0
        )
        for index, memory in enumerate(details.memory[:_MAX_MEMORY_LINES])
    ]
    if len(details.memory) > _MAX_MEMORY_LINES:
        lines.append("...")
    return lines


def _list_parts(memory: StageMemory) -> tuple[float, float, float]:
    return memory.fixed_bytes, memory.kept_bytes, memory.working_bytes


def _make_memory_cell(memory: StageMemory) -> TableCell:
    if memory.capacity_bytes is None:
        return TableCell(format_memory(memory.peak_bytes))
    share_of_capacity = memory.peak_bytes / memory.capacity_bytes
    style = ""
    if share_of_capacity > 1:
        style = "failed"
    elif share_of_capacity > _NEARLY_FULL:
        style = "slow"
    return TableCell(
        f"{format_memory(memory.peak_bytes)} of {format_memory(memory.capacity_bytes)}", style
    )
