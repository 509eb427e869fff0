"""The timeline of a step as a trace for ``chrome://tracing`` and Perfetto.

Format: Trace Event Format, complete events (``ph`` ``X``) with times in microseconds. A stage is a
process. Its passes, its messages in each direction and its all-reduce are threads.
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
    """Return a step as the JSON object of a trace file."""
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "profile": plan.profile,
            "cluster": plan.cluster,
            "schedule": simulation.schedule,
            "step_ms": simulation.step_s * 1e3,
        },
        "traceEvents": [*_make_name_events(plan), *_make_span_events(simulation)],
    }


def _make_name_events(plan: Plan) -> list[dict[str, Any]]:
    """Return the events that name stages and their threads."""
    events = []
    for index, stage in enumerate(plan.stages):
        label = f"stage {index}: {format_span(plan.state_names, stage.start, stage.end)}"
        label += f", {format_devices(stage.device_count)}"
        events.append(_make_name_event("process_name", index, 0, label))
        events += [
            _make_name_event("thread_name", index, *thread)
            for thread in dict.fromkeys(_THREADS.values())
        ]
    return events


def _make_name_event(event_name: str, stage: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": event_name, "pid": stage, "tid": thread, "args": {"name": name}}


def _make_span_events(simulation: Simulation) -> list[dict[str, Any]]:
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
