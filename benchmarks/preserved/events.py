"""The events of a run as a text: who reports what, without times and measured values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.preserved.transcripts import Transcripts

OF_TIMING = {"heartbeat", "progress", "repeats_end"}
"""Events that depend on how long something takes."""
MEASURED = {
    *("time", "seq", "pid", "token", "id", "load", "value", "values", "disturbed", "width", "argv"),
    *("environment", "hostfile", "host", "host_cpus", "stragglers", "findings", "message", "env"),
    *("cpus", "nodes", "numa", "reason", "measured_by"),
    # The data of some checks depends on how far a rank comes in a time.
    *("max_abs_error", "tolerance", "detail"),
}
"""Fields that differ from run to run; their names are kept."""
SMOKE = "suites/smoke.yaml"


def record_smoke(transcripts: Transcripts) -> None:
    """Run the smoke suite on two ranks, and record its events."""
    home = transcripts.scratch / "home"
    result = transcripts.run("run", SMOKE, "--headless", home=home)
    transcripts.write("smoke.exit", f"exit {result.returncode}\n{_without_numbers(result.stderr)}")
    logs = list((home / "runs").glob("*/events.jsonl"))
    transcripts.write("smoke.events", "\n".join(event_lines(logs[0])) + "\n")


def event_lines(log: Path) -> Iterator[str]:
    """Yield the events sorted, each once."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    lines = dict.fromkeys(
        (event.get("rank", -1), _text_of(event))
        for event in events
        if event["event"] not in OF_TIMING
    )
    yield from sorted(f"{rank} {text}" for rank, text in lines)


def _text_of(event: Mapping[str, Any]) -> str:
    fields = {
        key: "..." if key in MEASURED else value for key, value in event.items() if key != "rank"
    }
    return json.dumps(fields, sort_keys=True)


def _without_numbers(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not any(map(str.isdigit, line)))
