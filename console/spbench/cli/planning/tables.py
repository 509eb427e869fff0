"""Plans as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from spbench.cli.tables import align_columns
from spbench.planner.output.plan_description import (
    STAGE_LEGEND,
    describe_links,
    describe_memory,
    describe_plan,
    describe_step,
    describe_step_parts,
    format_baseline_cells,
    format_memory,
    format_seconds,
    format_stage_cells,
    format_verification_cells,
    list_stage_notes,
)
from spbench.record.machine.cores import fold_numbers
from spbench.record.number_formatting import format_factor
from spbench.report.text_tables import (
    ELLIPSIS,
    TextColumn,
    align_and_wrap,
    cut_middle,
    render_table,
    wrap_text,
)
from spbench_core.quantities import format_quantity

if TYPE_CHECKING:
    from spbench.planner.cluster.machines import Cluster
    from spbench.planner.output.verification import Verification
    from spbench.planner.plans import Plan, PlanStage
    from spbench.planner.simulation.step import Simulation

_STATES = "states"
_STAGES = (
    TextColumn("stage", right=True),
    TextColumn("layers", ids=True),
    TextColumn(_STATES, optional=True, rank=3),
    TextColumn("devices"),
    TextColumn("forward", right=True),
    TextColumn("backward", right=True),
    TextColumn("send", right=True, optional=True, rank=2),
    TextColumn("all-reduce", right=True, optional=True, rank=1),
    TextColumn("memory", right=True),
)
_DEVICES = 3
"""The column of the devices: scattered ones make a long list."""
_LEAST_DEVICES = 7
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


def render_plan(plan: Plan, cluster: Cluster, width: int) -> Iterator[str]:
    """Yield a plan: its figures, the cluster, its stages, and other ways to train the same.

    Args:
        plan: The plan.
        cluster: Its cluster.
        width: The most columns of a line.
    """
    links = describe_links(cluster)
    yield from _wrapped((*describe_plan(plan), *([links] if links else ())), width)
    yield from _wrapped((describe_memory(cluster),), width)
    yield ""
    table = _stage_table(plan, width)
    yield from table
    yield from _wrapped((STAGE_LEGEND, *list_stage_notes(plan)), width)
    if _STATES in table[0].split():
        yield from _wrapped((_STATES_LEGEND,), width)
    yield ""
    ways = [("way to train", "step", "speed-up", ""), *format_baseline_cells(plan)]
    yield from align_and_wrap(ways, width, (1, 2))


def render_batches(plans: Sequence[tuple[int, Plan | None]], width: int) -> Iterator[str]:
    """Yield one line for each of several global batch sizes, and what their stages mean."""
    rows = [
        (
            str(batch),
            format_seconds(plan.step_s) if plan else "",
            format_factor(plan.speedup) if plan else "",
            str(plan.micro_batch_size) if plan else "",
        )
        for batch, plan in plans
    ]
    *titles, last = _BATCHES
    numbers = align_columns([titles, *rows], range(len(titles)))
    room = width - max(map(len, numbers)) - 2
    stages = [
        _cut_stages([_stage_word(plan, stage) for stage in plan.stages], room)
        if plan
        else "no plan"
        for _, plan in plans
    ]
    yield from align_columns(
        [(*row, cell) for row, cell in zip((titles, *rows), (last, *stages), strict=True)],
        range(len(titles)),
    )
    yield from _wrapped((_BATCH_LEGEND,), width)


def render_step_legend(step: Simulation, width: int) -> Iterator[str]:
    """Yield what a step's timeline means, and its memory."""
    yield from _wrapped(describe_step(step), width)
    for at, (kept, peak) in enumerate(zip(step.in_flight, step.peak_bytes, strict=True)):
        flight = format_quantity(kept, "micro-batch", "micro-batches")
        yield f"stage {at}: {flight} in flight at most, {format_memory(peak)}"


def render_verification(plan: Plan, verified: Verification, width: int) -> Iterator[str]:
    """Yield predicted beside measured: of each stage, and of the step."""
    yield from render_table(_VERIFIED, format_verification_cells(plan, verified), width)
    yield from _wrapped((_VERIFIED_LEGEND, describe_step_parts(plan, verified)), width)


def _stage_table(plan: Plan, width: int) -> list[str]:
    rows = [list(format_stage_cells(plan, at)) for at in range(len(plan.stages))]
    longest = max(len(row[_DEVICES]) for row in rows)
    most = min(longest, max(width // 4, _LEAST_DEVICES))
    table = _with_short_devices(rows, most, width)
    excess = max(map(len, table)) - width
    if excess > 0:
        table = _with_short_devices(rows, max(most - excess, _LEAST_DEVICES), width)
    return table


def _with_short_devices(rows: Sequence[Sequence[str]], most: int, width: int) -> list[str]:
    short = [
        [*row[:_DEVICES], cut_middle(row[_DEVICES], most), *row[_DEVICES + 1 :]] for row in rows
    ]
    return render_table(_STAGES, short, width)


def _stage_word(plan: Plan, stage: PlanStage) -> str:
    return f"{stage.start}-{stage.end - 1}@{fold_numbers(stage.devices)}"


def _cut_stages(stages: Sequence[str], width: int) -> str:
    """Return stages in at most ``width`` characters; those before the last are left out first."""
    text = " ".join(stages)
    shown = len(stages) - 1
    while len(text) > width and shown > 1:
        shown -= 1
        text = " ".join((*stages[:shown], ELLIPSIS, stages[-1]))
    return cut_middle(text, width)


def _wrapped(lines: Iterable[str], width: int) -> Iterator[str]:
    for line in lines:
        yield from wrap_text(line, width)
