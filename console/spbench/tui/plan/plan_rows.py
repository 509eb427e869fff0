"""The tables of a plan: its stages, other ways to train the same, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.planner.output.plan_description import (
    THIS_PLAN,
    format_baseline_cells,
    format_memory,
    format_stage_cells,
    format_verification_cells,
)
from spbench.planner.output.verification import Verification
from spbench.planner.plans import Plan
from spbench.planner.request import PlanDetails
from spbench.planner.simulation.stage_memory import StageMemory, find_bar_limits
from spbench.tui.widgets.stacked_bars import Bar
from spbench.tui.widgets.table_columns import Column, TableCell

STAGES = (
    Column("stage", "stage", 5, "right"),
    Column("layers", "layers", 14, flexible=True),
    Column("devices", "devices", 7),
    Column("replicas", "replicas", 8, "right", rank=4),
    Column("forward", "forward", 7, "right"),
    Column("backward", "backward", 8, "right"),
    Column("send", "send", 7, "right", rank=3),
    Column("all-reduce", "all-reduce", 10, "right", rank=2),
    Column("memory", "memory", 18),
)
WAYS = (
    Column("way", "way", 19),
    Column("step", "step", 8, "right"),
    Column("speedup", "speed-up", 8, "right"),
    Column("reason", "", 10, flexible=True),
)
MEASURED = (
    Column("stage", "stage", 11, "right"),
    Column("end", "up to", 12, flexible=True),
    Column("predicted", "predicted", 9, "right"),
    Column("measured", "measured", 8, "right"),
    Column("error", "error", 7, "right"),
)
MEMORY_PARTS = ("parameters", "activations", "working")
"""The parts of a stage's memory; their first letters tell them apart."""
_CLOSE = 0.9
"""The part of a device's memory from which the figure is marked."""

Row = Sequence[TableCell | str]


def stage_rows(planned: PlanDetails) -> list[Row]:
    """Return a row for each stage."""
    rows: list[Row] = []
    for at, memory in enumerate(planned.memory):
        stage, layers, _, devices, *times, _ = format_stage_cells(planned.plan, at)
        replicas = str(planned.plan.stages[at].replicas)
        rows.append((stage, layers, devices, replicas, *times, _memory_cell(memory)))
    return rows


def way_rows(plan: Plan) -> list[Row]:
    """Return a row for each way, the plan's own marked."""
    return [
        (
            TableCell(name, "accent") if name == THIS_PLAN else name,
            step,
            speedup,
            TableCell(reason, "muted"),
        )
        for name, step, speedup, reason in format_baseline_cells(plan)
    ]


def measured_rows(plan: Plan, verified: Verification) -> list[Row]:
    """Return a row for each stage, and one of the step."""
    return [tuple(cells) for cells in format_verification_cells(plan, verified)]


def memory_bars(planned: PlanDetails) -> tuple[list[Bar], bool]:
    """Return the memory of each stage in its parts, and whether the devices' is the whole."""
    against, of_devices = find_bar_limits(planned.memory)
    bars = [
        Bar(
            f"stage {at} {_memory_cell(memory).text}",
            [part / whole for part in (memory.fixed, memory.activations, memory.working)],
        )
        for at, (memory, whole) in enumerate(zip(planned.memory, against, strict=True))
    ]
    return bars, of_devices


def _memory_cell(memory: StageMemory) -> TableCell:
    if memory.capacity is None:
        return TableCell(_size(memory.peak))
    full = memory.peak / memory.capacity
    style = "failed" if full > 1 else "slow" if full > _CLOSE else ""
    return TableCell(f"{_size(memory.peak)} of {_size(memory.capacity)}", style)


def _size(count: float) -> str:
    return format_memory(count)
