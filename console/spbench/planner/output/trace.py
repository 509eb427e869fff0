"""The timeline of a step as a trace for ``chrome://tracing`` and Perfetto.

Format: Trace Event Format, complete events (``ph`` ``X``) with times in microseconds; a stage is a
process, and its passes, its messages each way and its all-reduce are threads of it.
"""

from __future__ import annotations

from typing import Any

from spbench.planner.plans import Plan, format_devices, format_span
from spbench.planner.simulation.step import Kind, Simulation

_THREADS: dict[Kind, tuple[int, str]] = {
    "forward": (0, "passes"),
    "backward": (0, "passes"),
    "weights": (0, "passes"),
    "send": (1, "outputs to the next stage"),
    "return": (2, "gradients to the stage before"),
    "all-reduce": (3, "all-reduce"),
}


def build_trace(plan: Plan, simulation: Simulation) -> dict[str, Any]:
    """Return a step as the object that a trace file holds as JSON."""
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "profile": plan.profile,
            "cluster": plan.cluster,
            "schedule": simulation.schedule,
            "step_ms": simulation.step_s * 1e3,
        },
        "traceEvents": [*_names(plan), *_events(simulation)],
    }


def _names(plan: Plan) -> list[dict[str, Any]]:
    """Return what stages and their threads are called."""
    found = []
    for at, stage in enumerate(plan.stages):
        label = f"stage {at}: {format_span(plan.state_names, stage.start, stage.end)}"
        label += f", {format_devices(stage.replicas)}"
        found.append(_name("process_name", at, 0, label))
        found += [_name("thread_name", at, *thread) for thread in dict.fromkeys(_THREADS.values())]
    return found


def _name(what: str, stage: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": stage, "tid": thread, "args": {"name": name}}


def _events(simulation: Simulation) -> list[dict[str, Any]]:
    return [
        {
            "ph": "X",
            "name": span.kind if span.micro_batch is None else f"{span.kind} {span.micro_batch}",
            "cat": span.kind,
            "pid": span.stage,
            "tid": _THREADS[span.kind][0],
            "ts": span.start_s * 1e6,
            "dur": (span.end_s - span.start_s) * 1e6,
        }
        for span in simulation.spans
    ]
