"""Output of ``spbench plan`` in each of its formats."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spbench.planner.cluster.machines import Cluster
    from spbench.planner.errors import PlannerError
    from spbench.planner.plans import Plan

FORMATS = ("text", "json", "csv", "dot", "hpgo")
TIMELINES = ("text", "svg", "trace")


def render_plans(
    batches: Sequence[int],
    results: Sequence[Plan | PlannerError],
    format_: str,
    cluster: Cluster,
    width: int,
) -> str:
    """Return the plans of batch sizes in one of the `FORMATS`, without those that failed.

    Args:
        batches: The global batch sizes.
        results: The plan of each batch size, or the error that says why it has none.
        format_: One of the `FORMATS`.
        cluster: The cluster of the plans.
        width: The most columns of a line of text.
    """
    from spbench.cli.planning.tables import render_batches, render_plan
    from spbench.planner.errors import PlannerError
    from spbench.planner.output.plan_json import build_plan_json
    from spbench.planner.output.plan_text import render_csv, render_dot, render_hpgo

    by_batch = [None if isinstance(result, PlannerError) else result for result in results]
    plans = [plan for plan in by_batch if plan is not None]
    single = len(batches) == 1
    if format_ == "json":
        objects = [build_plan_json(plan) for plan in plans]
        return json.dumps(objects[0] if single else objects, indent=1, allow_nan=False) + "\n"
    if format_ == "csv":
        return render_csv(zip(batches, by_batch, strict=True))
    if format_ == "dot":
        return render_dot(plans[0])
    if format_ == "hpgo":
        return "".join(f"{render_hpgo(plan)}\n" for plan in plans)
    pairs = list(zip(batches, by_batch, strict=True))
    lines = render_plan(plans[0], cluster, width) if single else render_batches(pairs, width)
    return "".join(f"{line}\n" for line in lines)


def render_step(plan: Plan, timeline: str) -> str:
    """Return a step of a plan, event by event, in one of the `TIMELINES`."""
    from spbench.planner.simulation.step import simulate

    step = simulate(plan)
    if timeline == "svg":
        from spbench.planner.output.timeline_svg import render_timeline_svg

        return render_timeline_svg(plan, step)
    if timeline == "trace":
        from spbench.planner.output.trace import build_trace

        return json.dumps(build_trace(plan, step)) + "\n"
    from spbench.cli.planning.tables import render_step_legend
    from spbench.planner.output.timeline_text import render_timeline_text

    width = shutil.get_terminal_size((100, 24)).columns
    lines = (*render_timeline_text(step, width), *render_step_legend(step, width))
    return "".join(f"{line}\n" for line in lines)


def write_output(text: str, target: str) -> None:
    """Write text to a file, or to stdout for ``-``.

    Raises:
        SpbenchError: It cannot be written.
    """
    from spbench.record.runs.folder import write_file

    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_file(Path(target), text)
