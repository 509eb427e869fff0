"""The rows of the layers of a plan's profile, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from spbench.planner.output.plan_description import format_memory
from spbench.planner.profile.layers import Profile
from spbench.planner.request import PlanDetails
from spbench.record.number_formatting import format_time
from spbench.tui.plan.plan_rows import BAR_WIDTH, draw_bar
from spbench.tui.widgets.fixed_rows import FixedRow
from spbench.tui.widgets.table_columns import Column, TableCell
from spbench_core.number_text import format_quantity

Item = TypeVar("Item")

LAYERS = (
    Column("layer", "layer", 12, flexible=True),
    Column("stage", "stage", 5, "right"),
    Column("forward", "forward", 8, "right"),
    Column("backward", "backward", 8, "right"),
    Column("parameters", "parameters", 10, "right"),
    Column("bar", "forward + backward", BAR_WIDTH, drop_priority=1),
)


def build_layer_table(details: PlanDetails) -> tuple[Sequence[Column], list[FixedRow]]:
    """Return the columns and rows of the profile's layers.

    The stages are left out if the plan has other states than layers.
    """
    stage_by_layer = _find_stages_of_layers(details)
    pass_ms_by_layer = [layer.forward_ms + layer.backward_ms for layer in details.profile.layers]
    longest_ms = max(pass_ms_by_layer, default=0.0) or 1.0
    rows = []
    for index, layer in enumerate(details.profile.layers):
        stage = stage_by_layer[index]
        pass_ms = pass_ms_by_layer[index]
        cells: list[TableCell | str] = [layer.name, "" if stage is None else str(stage)]
        cells += (format_time(layer.forward_ms), format_time(layer.backward_ms))
        cells.append(format_memory(layer.parameter_bytes))
        cells.append(TableCell(draw_bar(pass_ms / longest_ms), "muted"))
        keys = [index, stage, layer.forward_ms, layer.backward_ms, layer.parameter_bytes, pass_ms]
        rows.append(FixedRow(cells, keys))
    if all(stage is None for stage in stage_by_layer):
        rows = [FixedRow(_skip_stage(row.cells), _skip_stage(row.sort_keys)) for row in rows]
        return _skip_stage(LAYERS), rows
    return LAYERS, rows


def describe_layer_sums(profile: Profile) -> str:
    """Return the times and the parameters of all layers together."""
    forward = format_time(sum(layer.forward_ms for layer in profile.layers))
    backward = format_time(sum(layer.backward_ms for layer in profile.layers))
    parameters = format_memory(sum(layer.parameter_bytes for layer in profile.layers))
    return f"all layers: forward {forward}, backward {backward}, parameters {parameters}"


def describe_layer_batch(details: PlanDetails) -> str:
    """Return how many samples the plan computes at once, if the profile has others.

    The text is empty if the times of the layers are those of the plan.
    """
    micro_batch_size = details.plan.micro_batch_size
    shares = {
        micro_batch_size / (stage.device_count // details.plan.pipelines)
        for stage in details.plan.stages
    }
    if shares == {details.profile.batch_size}:
        return ""
    times_text = format_quantity(details.profile.batch_size, "sample")
    shares_text = " or ".join(f"{share:.3g}" for share in sorted(shares))
    return f"These are times of {times_text}; a device of the plan computes {shares_text} at a time"


def _skip_stage(items: Sequence[Item]) -> list[Item]:
    """Return the items of the columns of `LAYERS` other than that of the stage."""
    return [item for item, column in zip(items, LAYERS, strict=True) if column.key != "stage"]


def _find_stages_of_layers(details: PlanDetails) -> list[int | None]:
    """Return the stage of each layer; None if the plan has other states."""
    plan = details.plan
    if plan.state_count != len(details.profile.layers):
        return [None] * len(details.profile.layers)
    return [
        next((n for n, stage in enumerate(plan.stages) if stage.start <= state < stage.end), None)
        for state in range(plan.state_count)
    ]
