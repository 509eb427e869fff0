"""Plans as text that other programs read: CSV with HPGO's columns, HPGO's tuples, Graphviz."""

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
"""Those of the reference's tables: all but the first and the last are speed-ups."""
_SPEEDUPS = (DP_PLAIN, DP_P3, DP_OVERLAP)


def render_hpgo(plan: Plan) -> str:
    """Return ``(speedup, [(start, end, replicas, [devices])])``, as HPGO prints it."""
    return repr((plan.speedup, plan.hpgo_stages()))


def render_csv(plans: Iterable[tuple[int, Plan | None]]) -> str:
    """Return a row for each global batch size; one without a plan has no other cells."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(CSV_COLUMNS)
    for batch, plan in plans:
        rows.writerow([batch, *(_cells(plan) if plan else [""] * (len(CSV_COLUMNS) - 1))])
    return text.getvalue()


def _cells(plan: Plan) -> list[str]:
    found = {each.name: each.speedup for each in plan.baselines}
    speedups = [found.get(name) for name in _SPEEDUPS]
    told = ["" if speedup is None else repr(speedup) for speedup in speedups]
    return [*told, repr(plan.speedup), repr(plan.hpgo_stages())]


def render_dot(plan: Plan) -> str:
    """Return the stages as a Graphviz graph: a box each, an arrow for what goes between them."""
    lines = ["digraph plan {", "  rankdir=LR;", "  node [shape=box];"]
    for at, stage in enumerate(plan.stages):
        told = (
            f"stage {at}: {format_span(plan.state_names, stage.start, stage.end)}",
            f"devices {','.join(map(str, stage.devices))}",
            f"{format_seconds(stage.forward_s + stage.backward_s)} per micro-batch",
            f"{format_memory(stage.memory_bytes)}{', recomputes' if stage.recompute else ''}",
        )
        lines.append(f"  stage{at} [label={_quoted(told)}];")
    for at, stage in enumerate(plan.stages[:-1]):
        label = _quoted((format_seconds(stage.send_s),))
        lines.append(f"  stage{at} -> stage{at + 1} [label={label}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(lines: Iterable[str]) -> str:
    return json.dumps("\n".join(lines), ensure_ascii=False)
