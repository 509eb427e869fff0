"""Plans as text for other programs: HPGO's CSV and tuples, and Graphviz."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable

from spbench.planner.hpgo.baselines import DP_OVERLAP, DP_P3, DP_PLAIN
from spbench.planner.output.plan_description import format_memory, format_seconds
from spbench.planner.plans import Plan, format_span

CSV_COLUMNS = (
    "Global Batch Size",
    "DP No Overlap",
    "DP+P3",
    "DP+Normal Overlap",
    "Best Hybrid Speedup",
    "solution",
)
"""The columns of HPGO's tables; all except the first and the last are speed-ups."""
_SPEEDUPS = (DP_PLAIN, DP_P3, DP_OVERLAP)


def render_hpgo(plan: Plan) -> str:
    """Return HPGO's output: ``(speedup, [(start, end, replicas, [devices])])``."""
    return repr((plan.speedup, plan.list_hpgo_stages()))


def render_csv(plans: Iterable[tuple[int, Plan | None]]) -> str:
    """Return CSV with a row for each global batch size; empty cells if it has no plan."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for batch, plan in plans:
        writer.writerow([batch, *(_format_cells(plan) if plan else [""] * (len(CSV_COLUMNS) - 1))])
    return text.getvalue()


def _format_cells(plan: Plan) -> list[str]:
    speedup_by_name = {baseline.name: baseline.speedup for baseline in plan.baselines}
    speedups = [speedup_by_name.get(name) for name in _SPEEDUPS]
    cells = ["" if speedup is None else repr(speedup) for speedup in speedups]
    return [*cells, repr(plan.speedup), repr(plan.list_hpgo_stages())]


def render_dot(plan: Plan) -> str:
    """Return the stages as a Graphviz graph, with arrows for messages."""
    lines = ["digraph plan {", "  rankdir=LR;", "  node [shape=box];"]
    for index, stage in enumerate(plan.stages):
        label_lines = (
            f"stage {index}: {format_span(plan.state_names, stage.start, stage.end)}",
            f"devices {','.join(map(str, stage.devices))}",
            f"{format_seconds(stage.forward_s + stage.backward_s)} per micro-batch",
            f"{format_memory(stage.memory_bytes)}{', recomputes' if stage.recompute else ''}",
        )
        lines.append(f"  stage{index} [label={_quote(label_lines)}];")
    for index, stage in enumerate(plan.stages[:-1]):
        label = _quote((format_seconds(stage.send_s),))
        lines.append(f"  stage{index} -> stage{index + 1} [label={label}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quote(lines: Iterable[str]) -> str:
    return json.dumps("\n".join(lines), ensure_ascii=False)
