"""The events of a run as a text, without times and measured values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.preserved.transcripts import Transcripts

TIMING_EVENTS = {"heartbeat", "progress", "repeats_end"}
"""Events that depend on times."""
MEASURED = {
    *("time", "seq", "pid", "token", "id", "load", "value", "values", "disturbed", "width", "argv"),
    *("environment", "hostfile", "host", "host_cpus", "stragglers", "findings", "message", "env"),
    *("cpus", "nodes", "numa", "reason", "measured_by"),
    # The data of some checks depends on the progress of a rank in a time.
    *("max_abs_error", "tolerance", "detail"),
}
"""Fields that differ from run to run; their names are kept."""
SMOKE = "suites/smoke.yaml"


def record_smoke(transcripts: Transcripts) -> None:
    """Run the smoke suite on two ranks, and record its events."""
    home = transcripts.scratch / "home"
    result = transcripts.run("run", SMOKE, "--headless", home=home)
    transcripts.write(
        "smoke.exit", f"exit {result.returncode}\n{_drop_lines_with_numbers(result.stderr)}"
    )
    logs = list((home / "runs").glob("*/events.jsonl"))
    transcripts.write("smoke.events", "\n".join(event_lines(logs[0])) + "\n")


def event_lines(log: Path) -> Iterator[str]:
    """Yield the events sorted, without duplicates."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    lines = dict.fromkeys(
        (event.get("rank", -1), _format_event(event))
        for event in events
        if event["event"] not in TIMING_EVENTS
    )
    yield from sorted(f"{rank} {text}" for rank, text in lines)


def _format_event(event: Mapping[str, Any]) -> str:
    fields = {
        key: "..." if key in MEASURED else value for key, value in event.items() if key != "rank"
    }
    return json.dumps(fields, sort_keys=True)


def _drop_lines_with_numbers(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not any(map(str.isdigit, line)))
